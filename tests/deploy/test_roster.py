"""Who speaks for a vehicle."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import RecordDict

from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.execute import refuse_undeployable
from fedwatt.deploy.messages import Content, from_records, to_records
from fedwatt.deploy.roster import Member, Roster
from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.runs import execute, from_toml
from fedwatt.runs.config import RunConfig
from fedwatt.runs.tables import read_table
from tests.deploy.fleets import config_text, deployed, loopback, make_fleet, weights
from tests.runs.test_execute import Silent

FEWER = ("\nvehicles = 4\nenrolment_seconds = 5", "\nvehicles = 3\nenrolment_seconds = 0.3")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("roster") / "fleet")


def asked(run: Path) -> set[str]:
    return set(read_table(run, "clients").column("vehicle").to_pylist())


def test_a_key_speaks_for_its_own_vehicle_only(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    true = {node: vehicle.name for node, vehicle in grid.vehicles.items()}
    grid.names = true | {1: "somebody else"}
    text = config_text(fleet, rounds=1).replace(*FEWER).replace("0.7", "1.0")
    assert asked(deployed(text, grid, tmp_path / "run")) == {true[n] for n in (2, 3, 4)}


def test_a_name_is_taken_once(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    grid.vehicles[4] = grid.vehicles[3]
    text = config_text(fleet, rounds=1).replace(*FEWER).replace("0.7", "1.0")
    run = deployed(text, grid, tmp_path / "run")
    assert len(read_table(run, "clients")) == 3


def test_a_vehicle_may_come_back_as_another_node(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")

    def reconnect(grid) -> None:
        if grid.training == 1 and 4 in grid.vehicles:
            grid.vehicles[44] = grid.vehicles.pop(4)

    grid.before_push = reconnect
    text = config_text(fleet, rounds=4).replace("0.7", "1.0")
    rows = read_table(deployed(text, grid, tmp_path / "run"), "rounds").to_pylist()
    assert [row["replies"] for row in rows[1:]][-1] == 4
    assert "44" in (tmp_path / "run" / "roster.jsonl").read_text()


def test_other_features_are_turned_away(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")

    def other(kind: str, node: int, reply: RecordDict) -> RecordDict:
        if kind != "enrol" or node != 1:
            return reply
        content = from_records(reply)
        return to_records(Content(dict(content.values) | {"features": ["speed"]}, content.arrays))

    grid.tamper = other
    text = config_text(fleet, rounds=1).replace(*FEWER)
    run = deployed(text, grid, tmp_path / "run")
    assert grid.vehicles[1].name not in asked(run)


def enrolling(**new: object):
    """Node 1 enrols with some fields replaced."""

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict:
        if kind != "enrol" or node != 1:
            return reply
        content = from_records(reply)
        values = {k: new.get(k, v) for k, v in content.values.items()}
        return to_records(Content(values, {k: new.get(k, v) for k, v in content.arrays.items()}))

    return tamper


@pytest.mark.parametrize("count", [2**62, 10**15, 4_000_001])
@pytest.mark.parametrize("split", [0, 2])
def test_more_windows_than_there_can_be_are_turned_away(
    split: int, count: int, fleet: Path, tmp_path: Path
) -> None:
    grid = loopback(fleet, tmp_path / "state")
    windows = np.array([50, 50, 50], dtype=np.int64)
    windows[split] = count
    grid.tamper = enrolling(windows=windows)
    run = deployed(config_text(fleet, rounds=1).replace(*FEWER), grid, tmp_path / "run")
    assert grid.vehicles[1].name not in asked(run)
    assert str(count) not in (run / "roster.jsonl").read_text()


def test_a_roster_with_impossible_windows_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "roster.jsonl"
    row = {"name": "car-001", "node": 1, "windows": [2**62, 5, 5], "simulated": True}
    path.write_text(json.dumps(row) + "\n")
    roster = Roster(None, RunConfig(), path)
    with pytest.raises(RunError, match="impossible number of windows"):
        roster.load()


def roster_with(path: Path, *lines: str) -> dict[str, Member]:
    path.write_text("".join(lines))
    roster = Roster(None, RunConfig(), path.with_suffix(".jsonl"))
    roster.load()
    return roster.members


def test_a_roster_is_read_up_to_its_last_whole_line_and_as_it_was_written_before(
    tmp_path: Path,
) -> None:
    rows = [
        {"name": name, "node": node, "windows": [7, 8, 9], "simulated": True, "relay": ""}
        for name, node in (("car-001", 1), ("car-002", 2), ("car-001", 3))
    ]
    one, two, again = (json.dumps(row) + "\n" for row in rows)
    path = tmp_path / "roster.jsonl"
    found = roster_with(path, one, two, again)
    assert {name: member.node for name, member in found.items()} == {"car-001": 3, "car-002": 2}
    assert list(roster_with(path, one, two[:-5])) == ["car-001"]  # the power went out
    path.unlink()
    old = tmp_path / "roster.json"
    assert list(roster_with(old, json.dumps(rows[:2], indent=2))) == ["car-001", "car-002"]
    assert path.read_text().splitlines() == [one.strip(), two.strip()]


def test_another_version_on_board_is_said_aloud(
    fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = loopback(fleet, tmp_path / "state")
    grid.tamper = enrolling(version="0.1.77")
    run = deployed(config_text(fleet, rounds=1).replace("0.7", "1.0"), grid, tmp_path / "run")
    assert grid.vehicles[1].name in asked(run)
    assert caplog.text.count("has fedwatt 0.1.77 on board") == 1


@pytest.mark.parametrize(("version", "what"), [("0.0.9", "the vehicle"), ("7.0", "the server")])
def test_a_version_that_is_not_served_is_turned_away(
    version: str, what: str, fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = loopback(fleet, tmp_path / "state")
    grid.tamper = enrolling(version=version)
    text = config_text(fleet, rounds=1).replace("vehicles = 4", "vehicles = 3")
    assert grid.vehicles[1].name not in asked(deployed(text, grid, tmp_path / "run"))
    assert f"it has fedwatt {version} on board" in caplog.text
    assert f"update {what}" in caplog.text


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("trouble", ["a wrong answer", "an error"])
def test_a_vehicle_that_was_repaired_is_let_in_and_not_nagged_before(
    trouble: str, fleet: Path, tmp_path: Path
) -> None:
    grid, clock = loopback(fleet, tmp_path / "state"), Clock()
    grid.vehicles = {1: grid.vehicles[1]}
    vehicle, tries = grid.vehicles[1], []
    broken = True

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict:
        tries.append(clock.now)
        if broken and trouble == "an error":
            raise DataError("no trips")
        return enrolling(features=["speed"])(kind, node, reply) if broken else reply

    answer = vehicle.answer
    vehicle.answer = lambda kind, records: tamper(kind, 1, answer(kind, records))
    exchange, config = Exchange(grid, clock=clock), from_toml(config_text(fleet))
    roster = Roster(exchange, config, tmp_path / "roster.jsonl")
    for clock.now in np.arange(0.0, 65.0, 1.0):
        roster.refresh()
    # Asked at 0 and answered at 1: again after 10 s, and 20 s after that answer, and 40 s later.
    assert tries == [1.0, 12.0, 33.0]
    broken = False
    for clock.now in np.arange(65.0, 80.0, 1.0):
        roster.refresh()
    assert list(roster.members) == [vehicle.name]


def test_too_few_vehicles_begin_nothing(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    grid.offline = {1, 2}
    with pytest.raises(RunError, match=r"2 of 3 vehicles enrolled within 0.3 s"):
        deployed(config_text(fleet).replace(*FEWER), grid, tmp_path / "run")
    assert not (tmp_path / "run" / "config.toml").exists()


def test_held_out_vehicles_are_judged_and_never_train(fleet: Path, tmp_path: Path) -> None:
    text = config_text(fleet, rounds=2).replace("window = 10", "window = 10\nheld_out = 1")
    grid = loopback(fleet, tmp_path / "state")
    run = deployed(text.replace("0.7", "1.0"), grid, tmp_path / "run")
    assert len(asked(run)) == 3
    errors = read_table(run, "rounds").column("held_out_rmse").to_pylist()
    assert np.isfinite(errors).all()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("seeds = [1]", "seeds = [1, 2]", "one model at a time"),
        ("[availability]", "[availability]\nreply_loss = 0.1", "by itself"),
        ('"fedavg"', '"fedavg+sign-flip"', "simulates faulty vehicles"),
        ("window = 10", 'window = 10\nfeatures = "base, terrain"', "under masks only"),
    ],
)
def test_what_only_a_simulation_can_do_is_refused(
    old: str, new: str, why: str, fleet: Path
) -> None:
    with pytest.raises(SettingError, match=f"(?i){why}"):
        refuse_undeployable(from_toml(config_text(fleet).replace(old, new)))


def test_vehicles_make_the_model_their_own(fleet: Path, tmp_path: Path) -> None:
    more = "[personal]\nenabled = true\nrates = [0.01]\nsteps = [20]\n"
    text = config_text(fleet, rounds=1).replace("[deploy]", more + "[deploy]")
    execute(from_toml(text), tmp_path / "simulated", Silent())
    real = deployed(text, loopback(fleet, tmp_path / "state"), tmp_path / "real")
    own, wanted = (
        [row for row in read_table(run, "vehicles").to_pylist() if row["model"] == "personal"]
        for run in (real, tmp_path / "simulated")
    )
    assert len(own) == len(wanted) >= 4
    assert [row["rmse"] for row in own] == pytest.approx(
        [row["rmse"] for row in wanted], rel=1e-4, nan_ok=True
    )


def test_noise_for_privacy_is_nobody_elses(fleet: Path, tmp_path: Path) -> None:
    text = config_text(fleet, "fedavg@private", rounds=1).replace("0.7", "1.0")
    one = deployed(text, loopback(fleet, tmp_path / "x"), tmp_path / "one")
    other = deployed(text, loopback(fleet, tmp_path / "y"), tmp_path / "other")
    execute(from_toml(text), tmp_path / "simulated", Silent())
    models = [list(weights(run).values()) for run in (one, other, tmp_path / "simulated")]
    assert not any(torch.equal(a, b) for a, b in zip(models[0], models[1], strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(models[0], models[2], strict=True))
    assert read_table(one, "rounds").column("epsilon").to_pylist()[-1] > 0
