"""Elevation maps and routes by secure aggregation: those of a simulation, and kept in vehicles."""

from pathlib import Path

import pytest
import torch

from fedwatt.deploy.vehicle.client_state import plan_folder
from fedwatt.deploy.vehicle.messages import VECTOR
from fedwatt.deploy.wire import Content, pack, unpack
from fedwatt.elevation.store import read_map_file
from fedwatt.journeys.route_files import fleet_from_bytes
from fedwatt.runs.config import from_toml
from fedwatt.runs.journeys import ROUTES
from fedwatt.runs.run import Run
from tests.deploy.fleets import deployed, loopback, plan_of, signed, weights
from tests.deploy.hilly import fleet_with_elevation, hilly
from tests.runs.test_execute import Silent


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fleet_with_elevation(tmp_path_factory.mktemp("maps") / "fleet")


def test_vehicles_learn_the_map_and_the_model_of_a_simulation(fleet: Path, tmp_path: Path) -> None:
    text = hilly(fleet, rounds=2)
    content = signed(text)
    grid = loopback(fleet, tmp_path / "state")
    real = deployed(content, grid, tmp_path / "real")
    Run(from_toml(text), out=tmp_path / "simulated", observer=Silent()).execute()
    learned, expected = (
        read_map_file(run / "elevation_map.parquet") for run in (real, tmp_path / "simulated")
    )
    assert learned.nodes == expected.nodes > 0
    weights_after = weights(tmp_path / "simulated")
    got = weights(real)
    for name in weights_after:
        torch.testing.assert_close(got[name], weights_after[name], rtol=0, atol=1e-5, msg=name)
    digest = plan_of(content).digest
    for vehicle in grid.vehicles.values():
        vehicle_map = read_map_file(plan_folder(vehicle.state, digest) / "elevation.parquet")
        assert vehicle_map.nodes >= learned.nodes
    for _, kind, body in grid.sent:
        if kind == "elevation":
            assert set(unpack(body).values) == {"status", "exchange", "vehicle", "words"}, VECTOR


def test_a_second_map_of_a_plan_is_refused(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    deployed(hilly(fleet, rounds=1), grid, tmp_path / "run")
    body = next(body for node, kind, body in grid.asked if kind == "elevation-map" and node == 1)
    vehicle = grid.vehicles[1]
    assert unpack(vehicle.handle(body)).values["status"] == "done"
    request = unpack(body)
    moved = {name: array + (array.dtype.kind == "f") for name, array in request.arrays.items()}
    other = pack(Content(request.values, moved))
    assert unpack(vehicle.handle(other)).values["status"] == "failed"


def test_a_resumed_run_learns_no_second_map(fleet: Path, tmp_path: Path) -> None:
    text = hilly(fleet, rounds=2)
    grid = loopback(fleet, tmp_path / "state")
    with pytest.raises(KeyboardInterrupt):
        deployed(text, grid, tmp_path / "run", stop=1)
    before = grid.kinds().count("elevation")
    deployed(text, grid, tmp_path / "run", resume=True)
    assert grid.kinds().count("elevation") == before > 0


def test_routes_are_learned_by_secure_aggregation(fleet: Path, tmp_path: Path) -> None:
    text = hilly(fleet).replace('features = "base, elevation"', 'features = "base"')
    text = text.replace("[deploy]\n", "[deploy]\nroutes = true\n")
    grid = loopback(fleet, tmp_path / "state")
    run = deployed(text, grid, tmp_path / "run")
    learned = fleet_from_bytes((run / ROUTES).read_bytes(), "routes")
    assert learned.vehicles >= 3 and len(learned.driving.keys) > 0
    assert {"elevation", "routes", "driving-map"} <= set(grid.kinds())
    for _, kind, body in grid.sent:
        if kind == "routes":
            assert set(unpack(body).values) == {"status", "exchange", "vehicle", "words"}
