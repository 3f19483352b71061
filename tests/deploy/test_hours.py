"""Vehicles that answer at some hours of the day only."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

import torch
from flwr.app import Message

from fedwatt.deploy import node
from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.hours import Hours, NotNow
from fedwatt.deploy.messages import MESSAGE_TYPES, Content, to_records
from fedwatt.deploy.progress import describe_run
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.errors import SettingError
from fedwatt.operate.alert_rules import AlertRules, _replies
from fedwatt.operate.fleet_view import FleetView
from fedwatt.runs import from_toml
from fedwatt.runs.tables import read_table
from fedwatt.telemetry.store import vehicle_folders
from tests.deploy.fleets import BOARD, config_text, deployed, loopback, make_fleet, weights
from tests.deploy.loopback import Loopback

BERLIN = "22:00-06:00 Europe/Berlin"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("hours") / "fleet")


def away(text: str, now: str) -> float:
    """Hours until these begin, at a moment in UTC."""
    own = Hours.of(text)
    moment = datetime.fromisoformat(now).replace(tzinfo=UTC)
    return Hours(own.parts, own.zone, lambda: moment).away_seconds() / 3600


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        # Berlin is two hours ahead of UTC in July and one hour in January.
        (BERLIN, "2026-07-10 19:59", 1 / 60),
        (BERLIN, "2026-07-10 20:00", 0),
        (BERLIN, "2026-07-11 03:59", 0),
        (BERLIN, "2026-07-11 04:00", 16),
        (BERLIN, "2026-01-10 20:00", 1),
        (BERLIN, "2026-01-10 21:00", 0),
        # The night in which clocks go from 2:00 to 3:00: 22:00 to 6:00 are seven hours.
        (BERLIN, "2026-03-28 21:00", 0),
        (BERLIN, "2026-03-29 03:59", 0),
        (BERLIN, "2026-03-29 04:00", 16),
        # Clocks go from 3:00 back to 2:00: the same are nine hours, and the day before has 24.
        (BERLIN, "2026-10-24 19:00", 1),
        (BERLIN, "2026-10-25 04:59", 0),
        (BERLIN, "2026-10-25 05:00", 16),
        # A time that does not exist that day is an hour later by the clock.
        ("02:30-04:00 Europe/Berlin", "2026-03-29 01:00", 0.5),
        ("09:00-17:00 UTC", "2026-07-10 08:00", 1),
        ("09:00-17:00 UTC", "2026-07-10 17:00", 16),
        ("12:00-13:30,22:00-06:00 UTC", "2026-07-10 06:30", 5.5),
        ("12:00-13:30,22:00-06:00 UTC", "2026-07-10 13:30", 8.5),
    ],
)
def test_hours_by_the_clock(text: str, now: str, expected: float) -> None:
    assert away(text, now) == pytest.approx(expected, abs=1e-9)
    assert str(Hours.of(text)) == text


def test_without_a_zone_the_machines_own_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        # 22:00 in New York is 3:00 UTC in January and 2:00 UTC in July.
        assert away("22:00-06:00", "2026-01-10 02:00") == pytest.approx(1)
        assert away("22:00-06:00", "2026-07-10 02:00") == 0
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "22-6-7", "22:00-22:00", "25:00-26:00", "22:00", "all"])
def test_what_is_no_hours_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="such as 22:00-06:00"):
        Hours.of(text)
    with pytest.raises(SettingError, match="no time zone 'Europe/Nowhere'"):
        Hours.of("22:00-06:00 Europe/Nowhere")


def test_a_vehicle_outside_its_hours_uses_no_answer_up(fleet: Path, tmp_path: Path) -> None:
    folder = vehicle_folders(fleet)[0]
    moment = datetime(2026, 7, 10, 12, tzinfo=UTC)
    own = Hours(Hours.of("13:00-14:00 UTC").parts, Hours.of(BERLIN).zone, lambda: moment)
    vehicle = Vehicle(folder, tmp_path, board=replace(BOARD, hours=own))  # 14:00 in Berlin
    message = Message(to_records(Content()), 1, MESSAGE_TYPES["train"])
    reply = node.answer(vehicle, message)
    assert (reply.error.code, reply.error.reason) == (701, str(23 * 3600))
    assert vehicle.guard.ledger.answers_today() == 0
    # What belongs to a sum that it began is another question's to refuse.
    with pytest.raises(NotNow):
        own.refuse("secure-keys")
    for kind in ("enrol", "secure-train", "secure-reveal", "terrain-field"):
        own.refuse(kind)


def nightly(grid: Loopback, nodes: set[int], begins: str, clock: list[datetime]) -> None:
    """Give some vehicles an hour from a time on, by a clock that the test turns."""
    parts, zone = Hours.of(f"{begins}-00:00 UTC").parts, Hours.of("01:00-02:00 UTC").zone
    for number in nodes:
        own = Hours(parts, zone, lambda: clock[0])
        grid.vehicles[number].board = replace(BOARD, hours=own)


def test_a_fleet_goes_on_without_those_that_are_away(
    fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One vehicle leaves after the first round, one is away from the start; no fault is counted."""
    clock = [datetime(2026, 7, 10, 23, tzinfo=UTC)]
    grid = loopback(fleet, tmp_path / "state")
    nightly(grid, {1}, "22:00", clock)
    nightly(grid, {2}, "08:00", [datetime(2026, 7, 10, 7, tzinfo=UTC)])

    def later(kind: str, number: int, reply):
        if (kind, number, grid.training) == ("evaluate", 1, 1):
            clock[0] = datetime(2026, 7, 11, 0, 30, tzinfo=UTC)
        return reply

    grid.tamper = later
    text = config_text(fleet, rounds=3).replace("participation = 0.7", "participation = 1.0")
    run = deployed(text, grid, tmp_path / "run")
    clients = read_table(run, "clients").to_pylist()
    one, two = grid.vehicles[1].name, grid.vehicles[2].name
    assert all(row["vehicle"] != two for row in clients)
    trained = [row["round"] for row in clients if row["vehicle"] == one and row["replied"]]
    assert trained == [1]
    available = read_table(run, "rounds").column("available").to_pylist()
    # It is called to the second round before it says that it is away, and to none after that.
    assert available == [3, 3, 3, 2]
    missed = [(row["round"], row["vehicle"]) for row in clients if not row["replied"]]
    assert missed == [(2, one)] and not any(row["rejected"] for row in clients)
    assert not (run / "conduct.json").exists()
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    told = [line for line in lines if line["event"] == "away"]
    assert {line["vehicle"] for line in told} == {one, two}
    assert all("outside its hours, until" in line["reason"] for line in told)
    # Each was asked at most once when it was away, and the page says until when.
    assert len(told) == 2
    rows = {row["vehicle"]: row for row in FleetView(run).summary()["vehicles"]}
    assert rows[one]["state"] == rows[two]["state"] == "away"
    assert "until" in rows[one]["reason"] and rows[one]["failing"] == 0
    assert any("outside its hours, until" in line for line in describe_run(run))
    view = FleetView(run)
    view.refresh()
    assert not list(_replies(view, AlertRules(reply_share=1.0)))


def test_a_run_waits_for_the_hours(fleet: Path, tmp_path: Path) -> None:
    """All vehicles are away when the run is begun: they enrol, and are there an hour later."""
    clock = [datetime(2026, 7, 10, 21, tzinfo=UTC)]
    grid = loopback(fleet, tmp_path / "state")
    nightly(grid, set(grid.vehicles), "22:00", clock)
    text = config_text(fleet, rounds=2)
    config, out = from_toml(text), tmp_path / "run"
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += max(seconds, 60.0)
        clock[0] = datetime(2026, 7, 10, 21, tzinfo=UTC) + timedelta(seconds=now[0])

    exchange = Exchange(grid, 0.001, clock=lambda: now[0], sleep=sleep)
    roster = Roster(exchange, config, out / "roster.jsonl")
    roster.wait()
    assert len(roster.members) == 4 and not any(map(roster.there, roster.members))
    begun = now[0]
    while not all(map(roster.there, roster.members)):
        sleep(60)
        roster.refresh()
    assert begun < 120 and 3600 <= now[0] <= 3720


def test_hours_that_are_over_early_are_noticed_when_the_vehicle_comes_back(
    fleet: Path, tmp_path: Path
) -> None:
    grid = loopback(fleet, tmp_path / "state")
    nightly(grid, {1}, "22:00", [datetime(2026, 7, 10, 21, tzinfo=UTC)])
    roster = Roster(Exchange(grid, 0.001), from_toml(config_text(fleet)), tmp_path / "roster.jsonl")
    roster.wait()
    name = grid.vehicles[1].name
    assert roster.is_away(name) and not roster.there(name)
    grid.offline.add(1)
    roster.refresh()
    grid.offline.clear()
    roster.refresh()
    assert roster.there(name)


def test_a_fleet_within_its_hours_trains_the_model_of_one_without(
    fleet: Path, tmp_path: Path
) -> None:
    grid = loopback(fleet, tmp_path / "a")
    nightly(grid, set(grid.vehicles), "22:00", [datetime(2026, 7, 10, 23, tzinfo=UTC)])
    run = deployed(config_text(fleet, rounds=1), grid, tmp_path / "run")
    usual = deployed(config_text(fleet, rounds=1), loopback(fleet, tmp_path / "b"), tmp_path / "u")
    for name, own in weights(usual).items():
        assert torch.equal(weights(run)[name], own)
