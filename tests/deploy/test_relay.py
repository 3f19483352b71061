"""A tree of relays makes the model of one server, bit for bit."""

from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

import torch

from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.relay import Relay
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.runs.tables import read_table
from tests.deploy.boards import guarded
from tests.deploy.fleets import config_text, deployed, loopback, make_fleet, weights
from tests.deploy.loopback import Loopback

MASKS = "[secure]\nenabled = true\nstage_seconds = 5\n"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("relay") / "fleet", vehicles=6)


def relayed(fleet: Path, method: str = "fedavg", more: str = "", masks: str = "") -> str:
    text = config_text(fleet, method, 2, more)
    text = text.replace("vehicles = 4", "vehicles = 6\nrelays = 100")
    return text.replace("[[method]]", f"{masks}[[method]]")


def relay(name: str, folder: Path, vehicles: dict[int, Vehicle | Relay], **more: int) -> Relay:
    return Relay(name, folder / name, Exchange(Loopback(vehicles), 0.001), **more)


def tree(grid: Loopback, folder: Path) -> Loopback:
    """Two relays with three vehicles each, of which the second has a relay with two of them."""
    one, two, three, *others = grid.vehicles.values()
    inner = relay("inner", folder, dict(enumerate(others[1:], start=11)))
    north = relay("north", folder, {1: one, 2: two, 3: three})
    south = relay("south", folder, {1: others[0], 2: inner})
    return Loopback({1: south, 2: north})


def halves(grid: Loopback, folder: Path) -> Loopback:
    """Two relays with three vehicles each."""
    own = list(grid.vehicles.items())
    north, south = relay("north", folder, dict(own[:3])), relay("south", folder, dict(own[3:]))
    return Loopback({1: south, 2: north})


def assert_same(one: Path, other: Path) -> None:
    for model in ("last", "best"):
        expected, found = weights(one, model), weights(other, model)
        assert expected.keys() == found.keys()
        for name, own in expected.items():
            assert torch.equal(own, found[name]), name
    ones, others = (read_table(run, "clients").to_pylist() for run in (one, other))
    for row, same in zip(ones, others, strict=True):
        for column in ("vehicle", "replied", "steps", "drift"):
            assert repr(row[column]) == repr(same[column])  # masks hide a drift: it is NaN


@pytest.mark.parametrize("method", ["fo-ri-fedavg", "scaffold"])
def test_relays_make_the_model_of_one_server(method: str, fleet: Path, tmp_path: Path) -> None:
    text = relayed(fleet, method)
    alone = deployed(text, loopback(fleet, tmp_path / "a"), tmp_path / "alone")
    behind = tree(loopback(fleet, tmp_path / "b"), tmp_path / "relays")
    assert_same(alone, deployed(text, behind, tmp_path / "behind"))


def test_relays_under_masks(fleet: Path, tmp_path: Path) -> None:
    text = relayed(fleet, "fo-ri-fedavg", masks=MASKS).replace(
        "participation = 0.7", "participation = 1.0"
    )
    alone = deployed(text, guarded(fleet, tmp_path / "a", hiding=0.0), tmp_path / "alone")
    behind = halves(guarded(fleet, tmp_path / "b", hiding=0.0), tmp_path / "relays")
    assert_same(alone, deployed(text, behind, tmp_path / "behind"))
