"""A fleet on Flower's messages learns its routes under masks: the simulation's, and no more."""

import json
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from fedwatt.deploy.messages import REPLIES
from fedwatt.journeys.fleet_routes import JUDGED, FleetRoutes
from fedwatt.runs import from_toml
from fedwatt.runs.routes import learn_run_routes, run_routes
from tests.deploy.fleets import deployed, loopback
from tests.deploy.hilly import hilly, hilly_fleet
from tests.deploy.test_terrain_bytes import Line


def routed(fleet: Path) -> str:
    """Level features, so that hills are learned for routes alone, and routes."""
    text = hilly(fleet).replace('features = "base, terrain"', 'features = "base"')
    return text.replace("[deploy]\n", "[deploy]\nroutes = true\n")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hilly_fleet(tmp_path_factory.mktemp("routes") / "fleet")


@pytest.fixture(scope="module")
def line(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> Line:
    return Line(loopback(fleet, tmp_path_factory.mktemp("state")))


@pytest.fixture(scope="module")
def run(fleet: Path, line: Line, tmp_path_factory, lasting_identity: None) -> Path:
    line.grid.answer = line.answer
    return deployed(routed(fleet), line.grid, tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="module")
def simulated(fleet: Path) -> FleetRoutes:
    return learn_run_routes(from_toml(routed(fleet)))


def test_fleet_and_simulation_learn_the_same_routes(run, fleet, simulated) -> None:
    found = run_routes(run, from_toml(routed(fleet)))
    assert np.array_equal(found.driving.keys, simulated.driving.keys) and len(found.driving.keys)
    np.testing.assert_allclose(found.driving.sums, simulated.driving.sums, rtol=0, atol=1e-6)
    assert np.array_equal(found.driving.vehicles, simulated.driving.vehicles)
    for target, own in simulated.effects.items():
        for name in ("unit", "mean", "spread", "noise"):
            got, wanted = getattr(found.effects[target], name), getattr(own, name)
            np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6, err_msg=name)
        for name in JUDGED:
            assert np.array_equal(found.counts[target][name], simulated.counts[target][name])
    np.testing.assert_allclose(found.correction, simulated.correction, rtol=1e-6, atol=1e-6)
    assert found.insiders == simulated.insiders and found.vehicles == simulated.vehicles == 4
    facts = json.loads((run / "environment.json").read_text())["routes"]
    assert facts == {"cells": len(found.driving.keys), "vehicles": 4}
