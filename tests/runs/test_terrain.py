"""Hills and personal models in a run, from configuration to records."""

from pathlib import Path

import numpy as np
import pytest

from fedwatt.errors import DataError
from fedwatt.fleet import DataSettings
from fedwatt.fleet.store import write_fleet
from fedwatt.fleet.synthetic import synthetic_vehicles
from fedwatt.runs import execute, from_toml
from fedwatt.runs.config import Source
from fedwatt.runs.source import open_fleet
from fedwatt.runs.tables import read_table
from fedwatt.terrain import TerrainSettings, learn_shared
from fedwatt.terrain.store import write_field
from tests.runs.test_execute import Silent

CONFIG = """
seeds = [1, 2]
device = "cpu"
[fleet]
vehicles = 3
[data]
features = "base, terrain"
window = 10
stride = 40
[terrain]
minimum_vehicles = 2
[personal]
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
    execute(from_toml(CONFIG), out, Silent())
    return out


def test_records_hold_global_and_personal_errors(run):
    rows = read_table(run, "vehicles").to_pylist()
    whole = [row for row in rows if row["stratum"] == "all"]
    counted = {(r["method"], r["seed"], r["model"], r["vehicle"]) for r in whole}
    # 2 methods, 2 seeds, 3 models, 3 vehicles
    assert len(counted) == len(whole) == 36
    assert {row["model"] for row in whole} == {"last", "best", "personal"}


def test_the_configuration_is_kept_with_its_new_sections(run):
    config = from_toml((run / "config.toml").read_text())
    assert config == from_toml(CONFIG)
    assert config.personal.steps == (5, 10)
    assert config.terrain.minimum_vehicles == 2


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("fleet") / "town"
    write_fleet(path, synthetic_vehicles(4, trips=8), "a small town")
    return path


def ascent(fleet, vehicle: int) -> np.ndarray:
    client = fleet.clients[vehicle]
    column = client.series[:, fleet.features.index("ascent")]
    scaler = client.scaler
    return column * scaler.scale[-2] + scaler.center[-2]


def test_a_stored_field_measured_elevation_and_learning_agree_on_the_hills(stored, tmp_path):
    data = DataSettings(features="speed, terrain", window=10)
    open_to_all = TerrainSettings(minimum_vehicles=1, private=False)
    from fedwatt.fleet.store import read_fleet

    field, _ = learn_shared(read_fleet(stored), open_to_all, data)
    write_field(tmp_path / "hills.parquet", field)
    climbs = {}
    for source in ("learn", "measured", str(tmp_path / "hills.parquet")):
        settings = TerrainSettings(source=source, minimum_vehicles=1, private=False)
        climbs[source] = ascent(open_fleet(Source(data=str(stored)), data, settings), 0)
    learned, measured, read = climbs.values()
    assert read == pytest.approx(learned, abs=1e-5)

    def minutes(values):
        return values[: len(values) // 60 * 60].reshape(-1, 60).sum(axis=1)

    # Four vehicles and a few trips: alike, not equal. Each measured second is 0.1 m coarse.
    assert np.corrcoef(minutes(learned), minutes(measured))[0, 1] > 0.5


def test_held_out_vehicles_teach_the_field_nothing(stored):
    """Energy of a held-out vehicle may be anything: no other vehicle's features change."""
    data = DataSettings(features="speed, terrain", window=10, held_out=1)
    settings = TerrainSettings(minimum_vehicles=1)
    fleet = open_fleet(Source(data=str(stored)), data, settings)
    (out,) = (i for i, client in enumerate(fleet.clients) if client.held_out)
    from fedwatt.fleet.store import read_fleet
    from fedwatt.terrain import learn

    others = [v for i, v in enumerate(read_fleet(stored)) if i != out]
    alone = learn(others, settings, data)
    names = frozenset(v.name for v in others)
    together = learn(read_fleet(stored), settings, data, contributors=names)
    assert (alone.shared.elevation_m == together.shared.elevation_m).all()
    assert together.own[fleet.names[out]] is together.shared


def test_a_missing_field_is_named(stored):
    data = DataSettings(features="speed, terrain", window=10)
    with pytest.raises(DataError, match=r"There is no field nowhere\.parquet"):
        open_fleet(Source(data=str(stored)), data, TerrainSettings(source="nowhere.parquet"))
