"""`fedwatt elevation`: learn, draw, compare."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedwatt.elevation.store import Provenance, read_provenance
from fedwatt.synthetic.fleet import synthetic_vehicles
from fedwatt.telemetry.store import write_fleet
from fedwatt.windows import DataSettings
from fedwatt.windows.splits import held_out_vehicles
from tests.elevation.toys import TownGround


@pytest.fixture(scope="module")
def fleet(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("hills") / "town"
    write_fleet(path, synthetic_vehicles(4, trips=10), "a small town")
    return path


@pytest.fixture
def field(type_in, fleet, tmp_path) -> Path:
    out = tmp_path / "hills.parquet"
    status, messages = type_in(
        "elevation", "learn", str(fleet), "--out", str(out), "--set", "elevation.minimum_vehicles=2"
    )
    assert status == 0
    assert "driven by 2 or more vehicles" in messages
    return out


def test_a_map_is_drawn(type_in, field, tmp_path):
    for kind in ("png", "svg", "pdf"):
        file = tmp_path / f"map.{kind}"
        assert type_in("elevation", "map", str(field), "--out", str(file))[0] == 0
        assert file.stat().st_size > 10_000


def test_a_field_says_whose_training_trips_it_is_from(type_in, fleet, field, tmp_path):
    usual = DataSettings()
    cars = {f"car-00{number}" for number in range(1, 5)}
    assert read_provenance(field) == Provenance.by(cars, usual)
    out = tmp_path / "other.parquet"
    options = (
        "--set=data.split=[0.5, 0.2, 0.3]",
        "--set=data.split_seed=3",
        "--set=data.window=30",
    )
    requests = ("--set=data.held_out=1", "--set=elevation.minimum_vehicles=2")
    status, _ = type_in("elevation", "learn", str(fleet), "--out", str(out), *options, *requests)
    assert status == 0
    never = held_out_vehicles(cars, 1, 3)
    other = DataSettings(split=(0.5, 0.2, 0.3), split_seed=3, window=30)
    assert read_provenance(out) == Provenance.by(cars - never, other)


def test_a_run_refuses_a_field_of_another_split(type_in, fleet, field, tmp_path):
    status, messages = type_in(
        *("run", "--data", str(fleet), "--set", "data.features=speed, elevation"),
        *("--set", f"elevation.source={field}", "--set", "data.split_seed=1"),
        *("--out", str(tmp_path / "run")),
    )
    assert status == 2
    assert "may know this run's test trips" in " ".join(messages.split())
    assert not (tmp_path / "run").exists()


def test_a_field_is_held_against_a_terrain_model(type_in, field, tmp_path):
    latitude, longitude = np.meshgrid(
        np.linspace(44.9, 45.1, 401), np.linspace(-30.15, -29.85, 401)
    )
    places = {"latitude": latitude.ravel(), "longitude": longitude.ravel()}
    heights = TownGround().elevation_m(*places.values())
    pl.DataFrame({**places, "height": heights}).write_parquet(tmp_path / "town.parquet")
    model = str(tmp_path / "town.parquet")
    status, messages = type_in("elevation", "compare", str(field), model)
    assert status == 0
    assert "correlation of elevations" in messages


def test_a_folder_without_a_field_and_a_strange_file_are_refused(type_in, field, tmp_path):
    status, messages = type_in("elevation", "map", str(tmp_path), "--out", "map.png")
    assert status == 2
    assert "has no elevation map elevation_map.parquet" in messages
    status, messages = type_in("elevation", "map", str(field), "--out", str(tmp_path / "map.gif"))
    assert status == 2
    assert "ends in .png, .svg, .pdf" in messages
