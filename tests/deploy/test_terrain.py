"""Hills on board: from a field that lies in the vehicle."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import torch

from fedwatt.deploy.vehicle import Vehicle
from fedwatt.elevation.learn import learn_shared
from fedwatt.elevation.settings import TerrainSettings
from fedwatt.elevation.store import Provenance, write_field
from fedwatt.errors import DataError, SettingError
from fedwatt.runs import execute, from_toml
from fedwatt.telemetry.store import read_fleet, vehicle_folders
from fedwatt.windows import DataSettings
from tests.deploy.fleets import BOARD, config_text, deployed, make_fleet, weights
from tests.deploy.loopback import Loopback
from tests.runs.test_execute import Silent

HILLY = DataSettings(features="base, terrain", window=10, stride=20)


def test_a_field_on_board_gives_the_simulations_model(tmp_path: Path) -> None:
    fleet, field = make_fleet(tmp_path / "fleet"), tmp_path / "field.parquet"
    learned, _ = learn_shared(read_fleet(fleet), TerrainSettings(minimum_vehicles=1), HILLY)
    names = [vehicle.name for vehicle in read_fleet(fleet)]
    write_field(field, learned, provenance=Provenance.by(names, HILLY))
    text = config_text(fleet, rounds=2).replace(
        "window = 10", f'window = 10\nfeatures = "base, terrain"\n[terrain]\nsource = "{field}"'
    )
    text = text.replace("stride = 20\n", "").replace("[terrain]", "stride = 20\n[terrain]")
    execute(from_toml(text), tmp_path / "simulated", Silent())
    folders = vehicle_folders(fleet)
    grid = Loopback(
        {n: Vehicle(f, tmp_path / f.name, field, BOARD) for n, f in enumerate(folders, 1)}
    )
    real = deployed(text, grid, tmp_path / "real")
    wanted, got = weights(tmp_path / "simulated"), weights(real)
    for name in wanted:
        torch.testing.assert_close(got[name], wanted[name], rtol=0, atol=1e-6, msg=name)

    with pytest.raises(SettingError, match="may know this run's test trips"):
        Vehicle(folders[0], tmp_path, field).client(replace(HILLY, split_seed=1), str(field), None)
    with pytest.raises(DataError, match="--field FILE"):
        Vehicle(folders[0], tmp_path).client(HILLY, str(field), None)
