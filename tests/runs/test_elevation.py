"""Hills and personalised models in a run, from configuration to records."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from fedwatt.elevation.elevation_map import empty_map
from fedwatt.elevation.grid import Grid, find
from fedwatt.elevation.learn import learn
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.store import Provenance, read_map_file, read_provenance, write_map_file
from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.federation.selection import GLOBAL_MODELS
from fedwatt.runs.config import RunConfig, Source, from_toml
from fedwatt.runs.model_file import read_personalised
from fedwatt.runs.run import Run
from fedwatt.runs.source import learned_alone, open_fleet
from fedwatt.runs.tables import read_table
from fedwatt.synthetic.fleet import synthetic_vehicles
from fedwatt.telemetry.store import read_fleet, write_fleet
from fedwatt.windows import DataSettings, Fleet
from tests.runs.test_execute import Silent

CONFIG = """
seeds = [1, 2]
device = "cpu"
[fleet]
vehicles = 3
[data]
features = "base, elevation"
window = 10
stride = 40
[elevation]
minimum_vehicles = 2
[personalisation]
enabled = true
rates = [0.01]
steps = [5, 10]
[model]
hidden = [8, 4]
[training]
rounds = 2
participation = 1.0
[[method]]
name = "fedavg"
[[method]]
name = "scaffold"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("run") / "out"
    Run(from_toml(CONFIG), out=out, observer=Silent()).execute()
    return out


def test_records_hold_global_and_personal_errors(run):
    rows = read_table(run, "vehicles").to_pylist()
    complete = [row for row in rows if row["stratum"] == "all"]
    counted = {(r["method"], r["seed"], r["model"], r["vehicle"]) for r in complete}
    # 2 methods, 2 seeds, 4 models, 3 vehicles
    assert len(counted) == len(complete) == 48
    assert {row["model"] for row in complete} == {*GLOBAL_MODELS, "personalised"}


def test_the_configuration_is_kept_with_its_new_sections(run):
    config = from_toml((run / "config.toml").read_text())
    assert config == from_toml(CONFIG)
    assert config.personalisation.steps == (5, 10)
    assert config.elevation.minimum_vehicles == 2


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("fleet") / "town"
    write_fleet(path, synthetic_vehicles(4, trips=8), "a small town")
    return path


def fleet_of(source: Source, data: DataSettings, elevation: ElevationSettings) -> Fleet:
    return open_fleet(RunConfig(fleet=source, data=data, elevation=elevation))


def ascent(fleet, vehicle: int) -> np.ndarray:
    client = fleet.clients[vehicle]
    place = fleet.features.index("ascent")
    return client.series[:, place] * client.scaler.scale[place] + client.scaler.center[place]


def test_a_stored_field_measured_elevation_and_learning_agree_on_the_hills(stored, tmp_path):
    data = DataSettings(features="speed, elevation", window=10)
    open_to_all = ElevationSettings(source="learn", minimum_vehicles=1, private=False)
    field = learn(read_fleet(stored), open_to_all, data).shared
    write_map_file(tmp_path / "hills.parquet", field, provenance=Provenance.by(names(stored), data))
    climbs = {}
    for source in ("learn", "measured", str(tmp_path / "hills.parquet")):
        settings = ElevationSettings(source=source, minimum_vehicles=1, private=False)
        climbs[source] = ascent(fleet_of(Source(data=str(stored)), data, settings), 0)
    learned, measured, read = climbs.values()
    # Maps of vehicles hold undriven nodes beside the published ones.
    assert read == pytest.approx(learned, abs=0.05)

    def minutes(values):
        return values[: len(values) // 60 * 60].reshape(-1, 60).sum(axis=1)

    # Four vehicles and a few trips: alike, not equal. Each measured second is 0.1 m coarse.
    assert np.corrcoef(minutes(learned), minutes(measured))[0, 1] > 0.5


def test_held_out_vehicles_teach_the_field_nothing(stored):
    """Energy of a held-out vehicle may be anything: no other vehicle's features change."""
    data = DataSettings(features="speed, elevation", window=10, held_out=1)
    settings = ElevationSettings(source="learn", minimum_vehicles=1)
    fleet = fleet_of(Source(data=str(stored)), data, settings)
    (out,) = (i for i, client in enumerate(fleet.clients) if client.held_out)
    remaining = [v for i, v in enumerate(read_fleet(stored)) if i != out]
    alone = learn(remaining, settings, data)
    names = frozenset(v.name for v in remaining)
    together = learn(read_fleet(stored), settings, data, contributors=names)
    assert (alone.shared.elevation_m == together.shared.elevation_m).all()
    held_out = together.maps[fleet.names[out]]
    at, is_there = find(held_out.keys, together.shared.keys)
    assert is_there.all()
    assert (held_out.elevation_m[at] == together.shared.elevation_m).all()
    assert held_out.vehicles.sum() == together.shared.vehicles.sum()  # the others are undriven


def names(stored):
    return [vehicle.name for vehicle in read_fleet(stored)]


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"split_seed": 1}, "split_seed is 0 there and 1 here"),
        ({"split": (0.5, 0.2, 0.3)}, "split is 0.7/0.1/0.2 there and 0.5/0.2/0.3 here"),
        ({"window": 20}, "window is 10 there and 20 here"),
        ({"held_out": 1}, "which this run holds out"),
    ],
)
def test_a_field_that_may_know_test_trips_is_refused(stored, tmp_path, other, sentence):
    file = tmp_path / "hills.parquet"
    data = DataSettings(features="speed, elevation", window=10)
    write_map_file(file, empty_map(Grid()), provenance=Provenance.by(names(stored), data))
    fleet = Source(data=str(stored))
    elevation = ElevationSettings(source=str(file))
    fleet_of(fleet, data, elevation)
    with pytest.raises(SettingError, match=sentence):
        fleet_of(fleet, replace(data, **other), elevation)
    # Learned from vehicles of another town it knows none of these trips, whatever the split.
    write_map_file(file, empty_map(Grid()), provenance=Provenance.by(["bus-1"], data))
    fleet_of(fleet, replace(data, **other), elevation)


def test_a_field_that_does_not_say_whose_it_is_is_used_with_a_warning(stored, tmp_path, caplog):
    file = tmp_path / "hills.parquet"
    write_map_file(file, empty_map(Grid()))
    data = DataSettings(features="speed, elevation", window=10)
    fleet_of(Source(data=str(stored)), data, ElevationSettings(source=str(file)))
    assert "does not say which trips it was learned from" in caplog.text


def test_a_missing_field_is_named(stored):
    data = DataSettings(features="speed, elevation", window=10)
    with pytest.raises(DataError, match=r"There is no elevation map /.*/nowhere\.parquet"):
        fleet_of(Source(data=str(stored)), data, ElevationSettings(source="nowhere.parquet"))


def test_personal_models_are_kept_one_file_a_vehicle_and_seed(run):
    """The file of a vehicle that kept the global model holds the global model."""
    rows = [r for r in read_table(run, "vehicles").to_pylist() if r["stratum"] == "all"]
    files = sorted(p.relative_to(run / "personalised") for p in run.glob("personalised/*/*/*"))
    assert len(files) == 2 * 2 * 3
    assert str(files[0]) == "fedavg/seed-1/car-001.safetensors"
    with safe_open(run / "model.safetensors", framework="numpy") as stored:
        shared = {n: stored.get_tensor(n) for n in stored.keys()}  # noqa: SIM118
    changed = 0
    for seed in (1, 2):
        for name in ("car-001", "car-002", "car-003"):
            personal = read_personalised(run, "fedavg", seed, name)
            same = all(
                (personal[n] == shared[f"fedavg/final/seed-{seed}/{n}"]).all() for n in personal
            )
            first, remaining = (
                next(
                    r["rmse"]
                    for r in rows
                    if (r["method"], r["seed"], r["vehicle"], r["model"])
                    == ("fedavg", seed, name, model)
                )
                for model in ("personalised", "final")
            )
            assert same == (first == pytest.approx(remaining, rel=1e-6))
            changed += not same
    assert changed
    with pytest.raises(RunError, match="no personalised model of 'car-9'"):
        read_personalised(run, "fedavg", 1, "car-9")


def test_the_published_field_is_in_the_run_folder(run):
    field = read_map_file(run / "elevation_map.parquet")
    assert field.nodes > 50
    assert field.vehicles.min() >= 2
    environment = json.loads((run / "environment.json").read_text())
    assert environment["elevation"] == {"nodes": field.nodes, "vehicles": 3}
    taught = read_provenance(run / "elevation_map.parquet")
    assert taught == Provenance.by(["car-001", "car-002", "car-003"], from_toml(CONFIG).data)


def test_baselines_of_a_run_have_the_maps_that_vehicles_learn_alone(stored):
    """A run's local-only vehicles climb in maps of their own; they once had empty ones."""
    config = RunConfig(
        fleet=Source(data=str(stored)),
        data=DataSettings(features="speed, elevation", window=10),
        elevation=ElevationSettings(source="learn"),
    )
    alone = learned_alone(config)
    for vehicle in read_fleet(stored):
        only = learn([vehicle], config.elevation, config.data).maps[vehicle.name]
        assert np.array_equal(alone.maps[vehicle.name].keys, only.keys)
        assert np.array_equal(alone.maps[vehicle.name].elevation_m, only.elevation_m)
    assert any(alone_map.nodes for alone_map in alone.maps.values())


def test_the_ridge_of_a_local_only_vehicle_gains_by_its_own_map(tmp_path):
    text = CONFIG.replace("stride = 40", "stride = 10").replace('"scaffold"', '"fedprox"')
    errors = {}
    for features in ("base, elevation", "base"):
        out = tmp_path / features
        config = from_toml(text.replace("base, elevation", features))
        Run(
            replace(config, fleet=replace(config.fleet, trips=20)), out=out, observer=Silent()
        ).execute()
        rows = read_table(out, "baselines").to_pylist()
        errors[features] = np.mean(
            [r["rmse"] for r in rows if r["reference"] == "ridge" and r["stratum"] == "all"]
        )
    assert errors["base, elevation"] < 0.9 * errors["base"]
