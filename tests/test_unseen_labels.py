"""Nonsense in the energy of test trips changes no decision: it is only ever measured against.

Everything from telemetry to model files is made twice, with true energy in the test trips and with
nonsense there; what is learned, tuned, stopped and chosen must be equal, bit for bit.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from comparison.carry_out import PlannedRun, carry_out
from comparison.plan import Plan
from fedwatt.journeys.mixture import Mixture, chosen_mixture
from fedwatt.journeys.ridge import fleet_ridge
from fedwatt.runs.config import RunConfig, from_toml
from fedwatt.runs.run import Run
from fedwatt.runs.source import run_fleet
from fedwatt.runs.tables import read_table
from fedwatt.telemetry.store import write_fleet
from fedwatt.tuning.tune import tune
from tests.elevation.test_no_leak import perturbed
from tests.elevation.toys import fleet
from tests.runs.test_execute import Silent

CONFIG = """
seeds = [1, 2]
device = "cpu"
[fleet]
data = "FLEET"
[data]
features = "speed, elevation"
window = 20
stride = 10
[elevation]
minimum_vehicles = 2
[personalisation]
enabled = true
rates = [0.01, 0.1]
steps = [5, 20]
[model]
hidden = [8]
mixture = true
[training]
rounds = 20
steps = 5
learning_rate = 0.1
batch = 4
schedule = "constant"
patience = 1
participation = 1.0
[[method]]
name = "fedavg"
"""


@dataclass(frozen=True)
class Outcome:
    """A run, a study of settings and a record of the method comparison on one fleet."""

    config: RunConfig
    run: Path
    tuning: dict[str, Any]
    record: dict[str, Any]


def outcome(folder: Path, vehicles: list) -> Outcome:
    write_fleet(folder / "fleet", vehicles, "toys")
    config = from_toml(CONFIG.replace("FLEET", str(folder / "fleet")))
    Run(config, out=folder / "run", observer=Silent()).execute()
    short = replace(config, training=replace(config.training, rounds=2, patience=0))
    tune(short, folder / "study", trials=3, on_trial=lambda label, expected, study: None)
    plan = Plan(trials=3, further=0, rounds=2, steps=2, every=1, fine_tuning=(2,), seeds=(1, 2))
    carry_out(PlannedRun("synthetic base", "fedavg", plan, "cpu"), run_fleet(config), folder)
    study = json.loads((folder / "study" / "tuning.json").read_text())
    return Outcome(config, folder / "run", study, json.loads((folder / "record.json").read_text()))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> tuple[Outcome, Outcome]:
    """With true labels, and with nonsense in the test trips."""
    true = fleet(4, trips=10)
    data = from_toml(CONFIG).data
    wrong = [perturbed(vehicle, data) for vehicle in true]
    return (
        outcome(tmp_path_factory.mktemp("true"), true),
        outcome(tmp_path_factory.mktemp("wrong"), wrong),
    )


def column(one: Outcome, name: str) -> list[Any]:
    return [row[name] for row in read_table(one.run, "rounds").to_pylist()]


def test_the_nonsense_is_seen_by_what_measures_test_trips(outcomes) -> None:
    true, wrong = outcomes
    assert column(wrong, "test_rmse") != column(true, "test_rmse")
    assert wrong.record["curves"]["global"] != true.record["curves"]["global"]


def test_tuning_is_by_validation_error(outcomes) -> None:
    true, wrong = outcomes
    assert wrong.tuning == true.tuning, "trials were scored by test error"


def test_early_stopping_and_the_best_round_are_by_validation_error(outcomes) -> None:
    true, wrong = outcomes
    for name in ("round", "validation_rmse", "best_round", "final_validation_rmse"):
        # repr: NaN, where nothing was evaluated, is not equal to itself
        assert repr(column(wrong, name)) == repr(column(true, name)), name
    assert max(column(true, "round")) < true.config.training.rounds, "nothing stopped early"


def test_final_and_personalised_models_are_chosen_by_validation_error(outcomes) -> None:
    true, wrong = outcomes
    files = sorted(true.run.rglob("*.safetensors"))
    assert {"model.safetensors", "state.safetensors"} <= {file.name for file in files}
    assert any("personalised" in str(file) for file in files)
    for file in files:
        other = load_file(wrong.run / file.relative_to(true.run))
        for name, values in load_file(file).items():
            if "test" not in name:
                assert (other[name] == values).all(), f"{file.name}: {name}"


def test_the_elevation_map_and_its_use_are_learned_without_test_energy(outcomes) -> None:
    true, wrong = outcomes
    assert pq.read_table(wrong.run / "elevation_map.parquet") == pq.read_table(
        true.run / "elevation_map.parquet"
    )


def mixtures(one: Outcome) -> list[Mixture]:
    """Mixtures of each vehicle with a network that predicts half of every validation label."""
    clients = run_fleet(one.config).clients
    common = fleet_ridge(clients)
    return [chosen_mixture(client, common, client.labels["validation"] / 2) for client in clients]


FILES = (
    "fleet_ridge.json",
    "trip_prior.json",
    "intervals.json",
    "unseen.json",
)


def test_mixtures_of_network_and_ridges_are_chosen_without_test_energy(outcomes) -> None:
    true, wrong = outcomes
    for name in FILES:
        assert (wrong.run / name).read_text() == (true.run / name).read_text(), name
    for mixture, other in zip(mixtures(true), mixtures(wrong), strict=True):
        assert other.network == mixture.network
        assert (other.linear == mixture.linear).all()


def test_the_method_comparison_tunes_by_validation_error(outcomes) -> None:
    true, wrong = outcomes
    assert wrong.record["trials"] == true.record["trials"], "trials were scored by test error"
    assert wrong.record["settings"] == true.record["settings"]


def test_the_comparison_s_validation_curve_is_of_validation_windows(outcomes) -> None:
    true, wrong = outcomes
    assert wrong.record["curves"]["validation"] == true.record["curves"]["validation"]
