"""Run folders of methods that give vehicles models of their own: tables, files, predictions."""

from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from fedwatt import Run, Training, load
from fedwatt.runs.config import from_toml
from fedwatt.runs.model_file import personalised_file
from fedwatt.runs.tables import read_table
from tests.runs.test_execute import Silent, results

CONFIG = """
seeds = [1, 2]
device = "cpu"
[fleet]
vehicles = 4
[data]
window = 10
stride = 20
held_out = 1
[model]
hidden = [8, 4]
[training]
rounds = 4
participation = 0.6
batch = 16
[baselines]
enabled = false
[[method]]
name = "ditto"
[[method]]
name = "fedrep"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("own models") / "run"
    Run(from_toml(CONFIG), out=out, observer=Silent()).execute()
    return out


@pytest.mark.parametrize("method", ["ditto", "fedrep"])
def test_the_last_rounds_own_models_are_in_the_tables_and_on_disk(run: Path, method: str) -> None:
    rounds = read_table(run, "rounds").to_pylist()
    vehicles = read_table(run, "vehicles").to_pylist()
    trained = load(run, method=method)
    for seed in (1, 2):
        (last,) = [
            row for row in rounds if (row["method"], row["seed"], row["round"]) == (method, seed, 4)
        ]
        rows = [
            row
            for row in vehicles
            if (row["method"], row["model"], row["seed"], row["stratum"])
            == (method, "personalised", seed, "all")
        ]
        assert len(rows) == 4
        trained_rows = [row for row in rows if not row["held_out"]]
        pooled = sum(row["windows"] * row["rmse"] ** 2 for row in trained_rows)
        windows = sum(row["windows"] for row in trained_rows)
        assert last["personal_rmse"] == pytest.approx(sqrt(pooled / windows))
        (away,) = [row["rmse"] for row in rows if row["held_out"]]
        assert last["personal_held_out_rmse"] == pytest.approx(away)
        predicted = trained.predict(trained.fleet, seed=seed)  # by the vehicles' own models
        for row in rows:
            assert personalised_file(run, method, seed, row["vehicle"]).is_file()
            (client,) = [c for c in trained.fleet.clients if c.name == row["vehicle"]]
            measured = client.energy_wh(client.labels["test"])
            error = np.sqrt(np.mean((predicted[client.name] - measured) ** 2))
            assert error == pytest.approx(row["rmse"], rel=1e-4)


def test_a_run_that_was_stopped_makes_the_same_own_models(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        Run(from_toml(CONFIG), out=out, observer=Silent(stop_after=6)).execute()
    Run(from_toml(CONFIG), out=out, observer=Silent(), resume=True).execute()
    assert results(out) == results(run)
    for file in (run / "personalised").rglob("*.safetensors"):
        assert (out / file.relative_to(run)).read_bytes() == file.read_bytes()


def test_fine_tuning_begins_with_the_own_model(run: Path, tmp_path: Path) -> None:
    # At a rate that leaves no weight as it is, in steps that no validation error survives.
    tuned = CONFIG.replace('[[method]]\nname = "fedrep"\n', "")
    tuned += "[personalisation]\nenabled = true\nrates = [1e6]\nsteps = [1]\n"
    Run(from_toml(tuned), out=tmp_path / "tuned", observer=Silent()).execute()
    for file in (run / "personalised" / "ditto").rglob("*.safetensors"):
        assert (tmp_path / "tuned" / file.relative_to(run)).read_bytes() == file.read_bytes()


def test_own_models_of_a_training_in_memory_are_saved(run: Path, tmp_path: Path) -> None:
    fleet = load(run).fleet
    training = Training(rounds=2, participation=1.0, steps=5)
    trained = Run.on(fleet, training=training, device="cpu").train("ditto")
    energies = trained.predict(fleet)
    assert not np.array_equal(energies["car-001"], trained.predict(fleet, model="last")["car-001"])
    back = load(trained.save(tmp_path / "saved"), fleet=fleet)
    for name, energy in energies.items():
        np.testing.assert_allclose(back.predict(fleet)[name], energy, rtol=1e-6)
