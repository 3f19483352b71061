"""A tree of relays makes the model of one server, bit for bit."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

import numpy as np
import torch
from flwr.app import Message, RecordDict

from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.hills_on_server import PublishedHills, learn_hills
from fedwatt.deploy.messages import MESSAGE_TYPES, Content, from_records, to_records
from fedwatt.deploy.relay import Relay
from fedwatt.deploy.relay_app import Pending
from fedwatt.deploy.relay_roster import RelayRoster
from fedwatt.deploy.routes_on_board import RoutesOnBoard
from fedwatt.deploy.state import RunState
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.elevation.encoding import field_digest
from fedwatt.errors import DataError, SettingError
from fedwatt.runs import from_toml
from fedwatt.runs.config import RunConfig, to_toml
from fedwatt.runs.tables import read_table
from tests.deploy.boards import guarded
from tests.deploy.fleets import config_text, deployed, loopback, make_fleet, weights
from tests.deploy.hilly import hilly, hilly_fleet
from tests.deploy.loopback import Loopback


class PowerCut(Exception):
    """The centre is gone, and wrote nothing about it."""


MASKS = "[secure]\nenabled = true\nstage_seconds = 5\n"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("relay") / "fleet", vehicles=6)


def relayed(fleet: Path, method: str = "fedavg", rounds: int = 2, masks: str = "") -> str:
    text = config_text(fleet, method, rounds)
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


def test_relays_make_the_model_of_one_server(fleet: Path, tmp_path: Path) -> None:
    text = relayed(fleet, "scaffold")
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


def test_a_relay_that_forgot_everything_but_its_folder_gives_its_sum_again(
    fleet: Path, tmp_path: Path
) -> None:
    """The centre is killed in its second round and resumed; one relay was killed meanwhile."""
    text = relayed(fleet, masks=MASKS).replace("participation = 0.7", "participation = 1.0")
    alone = deployed(text, guarded(fleet, tmp_path / "a", hiding=0.0), tmp_path / "alone")
    own = guarded(fleet, tmp_path / "b", hiding=0.0)
    grid = halves(own, tmp_path / "relays")
    rounds = []

    def cut(kind: str, node: int, reply: RecordDict) -> RecordDict:
        rounds.append(kind)
        if rounds.count("relay-sum") == 8:  # of two relays, the second round's
            raise PowerCut
        return reply

    grid.tamper = cut
    with pytest.raises(PowerCut):
        deployed(text, grid, tmp_path / "run")
    fresh = halves(own, tmp_path / "relays")
    again = deployed(text, fresh, tmp_path / "run", resume=True)
    assert_same(alone, again)


@pytest.mark.parametrize(
    ("field", "lie"),
    [
        ("words", lambda words: bytes(len(words))),  # nobody weighs anything
        ("exchanges", lambda _: [7, 8]),
        ("exchanges", lambda _: [b"short", b"longer"]),
        ("rows", lambda _: ["fast", "slow"]),
    ],
)
def test_a_relay_that_lies_loses_its_part_alone(
    field: str, lie: Callable[[Any], Any], fleet: Path, tmp_path: Path
) -> None:
    text = relayed(fleet, rounds=1).replace("participation = 0.7", "participation = 1.0")
    grid = halves(loopback(fleet, tmp_path / "a"), tmp_path / "relays")

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict:
        if kind == "relay-sum" and node == 1:
            values = reply.config_records["values"]
            values[field] = lie(values[field])
        return reply

    grid.tamper = tamper
    run = deployed(text, grid, tmp_path / "run")
    replied = {r["vehicle"]: r["replied"] for r in read_table(run, "clients").to_pylist()}
    behind = {vehicle.name for vehicle in grid.vehicles[2].exchange.grid.vehicles.values()}
    assert {name for name, did in replied.items() if did} == behind


def test_what_does_not_add_is_refused_at_the_start(fleet: Path, tmp_path: Path) -> None:
    grid = halves(loopback(fleet, tmp_path / "a"), tmp_path / "relays")
    with pytest.raises(SettingError, match="Median compares single replies, and a relay passes"):
        deployed(relayed(fleet, "fedavg@median"), grid, tmp_path / "run")


def test_a_relay_wants_vehicles_enough_of_its_own(fleet: Path, tmp_path: Path) -> None:
    text = relayed(fleet, rounds=1).replace("participation = 0.7", "participation = 1.0")
    grid = halves(loopback(fleet, tmp_path / "a"), tmp_path / "relays")
    grid.vehicles[1].least = 4
    run = deployed(text, grid, tmp_path / "run")
    replied = [row["replied"] for row in read_table(run, "clients").to_pylist()]
    assert replied.count(True) == replied.count(False) == 3


def test_a_run_without_room_for_relays_turns_them_away(fleet: Path, tmp_path: Path) -> None:
    north = relay("north", tmp_path, {})
    with pytest.raises(SettingError, match=r"deploy\.relays"):
        north.answer("enrol", to_records(Content({"config": config_text(fleet)})))


def test_a_question_that_was_kept_is_the_one_that_came(tmp_path: Path) -> None:
    question = Content({"relay.kind": "secure-train", "x": b"12"}, {"weights": np.arange(3.0)})
    message = Message(to_records(question), 7, MESSAGE_TYPES["relay-sum"], ttl=60.0)
    message.metadata.__dict__["_message_id"] = "ab" * 32
    pending = Pending(tmp_path / "pending")
    path = pending.keep(message)
    ((found, again),) = Pending(tmp_path / "pending").questions()
    assert found == path and again.metadata.message_id == "ab" * 32
    read = from_records(again.content)
    assert read.values == question.values
    assert read.arrays["weights"].tolist() == [0.0, 1.0, 2.0]
    reply = Message(to_records(Content({"words": b""})), reply_to=again)
    assert reply.metadata.reply_to_message_id == "ab" * 32
    for _ in range(3):
        pending.questions()
    assert not pending.questions() and not path.exists()  # a centre that never takes it


def test_hills_through_relays(tmp_path: Path) -> None:
    """The field of four vehicles, two behind each relay, is that of one server, bit for bit."""
    fleet = hilly_fleet(tmp_path / "fleet")
    text = hilly(fleet).replace("[deploy]\n", "[deploy]\nrelays = 100\n")
    text = text.replace("[terrain]\n", "[terrain]\nminimum_vehicles = 2\n")
    own = loopback(fleet, tmp_path / "state")
    two = list(own.vehicles.items())
    north, south = relay("north", tmp_path, dict(two[:2])), relay("south", tmp_path, dict(two[2:]))
    fields = []
    for grid in (own, Loopback({1: north, 2: south})):
        folder = tmp_path / f"run-{len(fields)}"
        roster = RelayRoster(Exchange(grid, 0.001), from_toml(text), folder / "roster.jsonl")
        run = RunState.begin(folder, resume=False)
        roster.wait()
        fields.append(learn_hills(roster, run).field)
    assert fields[0].nodes == fields[1].nodes > 0
    assert field_digest(fields[0]) == field_digest(fields[1])
    common = {"run": run.run, "config": to_toml(roster.config)}
    roster.provision = PublishedHills(fields[1], common, 60.0)
    roster.provision.wait(roster)
    roster.relays[1].heard = roster.relays[2].heard = -math.inf
    roster.refresh()
    assert all(roster.there(name) for name in roster.members)  # all have the field on board


def test_a_driving_field_goes_through_relays(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To vehicles behind a relay behind a relay as well; who does not take it is not named."""

    def take(own: RoutesOnBoard, question: Content, config: RunConfig) -> Content:
        if own.folder.name == "car-003":
            raise DataError("no room")
        return Content({"field": "abc"})

    monkeypatch.setattr(RoutesOnBoard, "take", take)
    grid = tree(loopback(fleet, tmp_path / "state"), tmp_path / "relays")
    config = from_toml(relayed(fleet))
    roster = RelayRoster(Exchange(grid, 0.001), config, tmp_path / "roster.jsonl")
    roster.wait()
    names = sorted(roster.members)
    question = Content({"run": "a", "config": to_toml(config)})
    assert len(names) == 6 and "car-003" in names
    taken = dict.fromkeys((name for name in names if name != "car-003"), "abc")
    assert roster.hand_out(question, names, 5.0) == taken
