"""Rounds that wait for vehicles: pauses, what is asked again, and how a run ends."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import RecordDict

from fedwatt.deploy.execute import refuse_undeployable
from fedwatt.deploy.messages import from_records
from fedwatt.deploy.progress import LogLines, describe_run, log
from fedwatt.deploy.quorum import LONGEST_PAUSE, Quorum, vehicles_needed
from fedwatt.deploy.secure_fleet import SecureFleet
from fedwatt.deploy.state import PAUSED, RUN_LOCK, RUNNING, RunState
from fedwatt.errors import RunError, SettingError
from fedwatt.federation import History
from fedwatt.files import holding, is_held
from fedwatt.methods import get
from fedwatt.runs import from_toml
from fedwatt.runs.config import from_tables
from fedwatt.runs.tables import read_table
from fedwatt.windows.targets import TARGETS
from tests.deploy.fleets import config_text, deployed, loopback, make_fleet, weights
from tests.deploy.loopback import Loopback

ALL = ("participation = 0.7", "participation = 1.0")
IMPATIENT = ("round_seconds = 5", "round_seconds = 0.05")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("quorum") / "fleet")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of a millisecond."""
    for name in ("FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(f"fedwatt.deploy.quorum.{name}", 0.001)


class Clock:
    """Stands in for an exchange: only its clock and its sleep are asked for."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_how_many_vehicles_a_round_needs() -> None:
    assert vehicles_needed(1, 1, 0.3, "fixed") == 1
    # Seven vehicles at 0.3 are three called, six are two.
    assert vehicles_needed(1, 3, 0.3, "fixed") == 7
    assert vehicles_needed(9, 3, 0.3, "fixed") == 9
    assert vehicles_needed(2, 3, 0.3, "poisson") == 3


def test_a_round_under_masks_needs_as_many_as_its_smallest_sum() -> None:
    secure = from_tables({"secure": {"enabled": True}, "training": {"participation": 1.0}})
    assert SecureFleet.vehicles_needed(secure, get("fedavg")) == 3
    larger = from_tables({"secure": {"enabled": True, "smallest_sum": 5}})
    # Of those that are there, 30 % are called: 14 are five, 13 are four.
    assert larger.training.participation == 0.3
    assert SecureFleet.vehicles_needed(larger, get("fedavg")) == 14


def test_a_pause_is_noted_and_ends_by_itself(tmp_path: Path) -> None:
    clock, run = Clock(), RunState.begin(tmp_path, resume=False)
    seen, there = [], iter([0, 0, 1, 2])

    def look() -> int:
        seen.append(RunState.read(run.path).status)
        return next(there)

    Quorum(clock, run, 2, 100.0).wait(5, look)
    assert seen == [RUNNING, PAUSED, PAUSED, PAUSED]
    assert RunState.read(run.path).status == RUNNING
    assert clock.slept == [0.5, 1.0, 2.0]


def test_a_pause_that_is_too_long_ends_the_run(tmp_path: Path) -> None:
    clock, run = Clock(), RunState.begin(tmp_path, resume=False)
    with pytest.raises(RunError, match=r"waited 60 s .* after round 5: 1 of the 2 vehicles"):
        Quorum(clock, run, 2, 60.0).wait(5, lambda: 1)
    assert clock.now < 60 + 2 * LONGEST_PAUSE
    assert "after round 5: 1 of the 2 vehicles" in RunState.read(run.path).about


def test_vehicles_that_are_there_and_silent_end_the_run_too(tmp_path: Path) -> None:
    clock = Clock()
    quorum = Quorum(clock, RunState.begin(tmp_path, resume=False), 1, 60.0)
    with pytest.raises(RunError, match=r"waited 60 s .* 0 of 4 vehicles answered round 3"):
        for _ in range(100):
            quorum.wait(2, lambda: 4)
            clock.now += 20  # the deadline of a round
            quorum.unanswered(2, 4, 0, in_time=False)
    assert 60 < clock.now < 110


def test_vehicles_that_only_ever_fail_end_the_run(tmp_path: Path) -> None:
    quorum = Quorum(Clock(), RunState.begin(tmp_path, resume=False), 1, 60.0)
    quorum.unanswered(2, 4, 0, in_time=True)
    quorum.unanswered(2, 4, 0, in_time=False)  # silent, until the deadline
    quorum.unanswered(2, 4, 0, in_time=True)
    quorum.unanswered(2, 4, 0, in_time=True)
    with pytest.raises(RunError, match="0 of 4 vehicles answered round 3, 3 times in a row"):
        quorum.unanswered(2, 4, 0, in_time=True)


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_fleet_that_goes_away_and_comes_back_trains_the_same_model(
    method: str, fleet: Path, tmp_path: Path, soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    text = config_text(fleet, method, rounds=4).replace(*ALL)
    whole = deployed(text, loopback(fleet, tmp_path / "x"), tmp_path / "whole")
    grid, looks = loopback(fleet, tmp_path / "y"), []

    def away(grid: Loopback) -> None:
        if grid.training == 2:
            looks.append(RunState.read(tmp_path / "run" / "deployment.json").status)
        grid.offline = set(grid.vehicles) if 0 < len(looks) < 20 else set()

    grid.before_push = away
    run = deployed(text, grid, tmp_path / "run")
    assert PAUSED in looks
    _same(whole, run)
    assert "paused after round 2: 0 of the 1 vehicle that a round needs are there" in caplog.text
    replies = read_table(run, "rounds").column("replies").to_pylist()
    assert replies == [0, 4, 4, 4, 4]
    assert RunState.read(run / "deployment.json").status == "finished"


def test_a_round_that_too_few_answered_is_asked_again(
    fleet: Path, tmp_path: Path, soon: None
) -> None:
    text = config_text(fleet, "scaffold", rounds=3).replace(*ALL).replace(*IMPATIENT)
    text = text.replace("poll_seconds", "quorum = 4\npoll_seconds")
    whole = deployed(text, loopback(fleet, tmp_path / "x"), tmp_path / "whole")
    grid, lost = loopback(fleet, tmp_path / "y"), []

    def lose(kind: str, node: int, reply: RecordDict) -> RecordDict | None:
        second = kind == "train" and from_records(reply).values["round"] == 1
        if second and node == 2 and len(lost) < 2:
            lost.append(node)  # trained and remembered, and never arrived
            return None
        return reply

    grid.tamper = lose
    run = deployed(text, grid, tmp_path / "run")
    assert lost == [2, 2] and grid.training == 5
    _same(whole, run)


def test_over_selection_closes_a_round_without_the_slowest(fleet: Path, tmp_path: Path) -> None:
    text = config_text(fleet, "fedavg", rounds=2).replace(
        "participation = 0.7", "participation = 0.5"
    )
    text = text.replace("poll_seconds", "over_selection = 1.0\npoll_seconds")
    grid, silent = loopback(fleet, tmp_path / "x"), [1, 3]
    grid.tamper = lambda kind, node, reply: None if kind == "train" and node in silent else reply
    run = deployed(text, grid, tmp_path / "run")
    rows = read_table(run, "rounds").to_pylist()[1:]
    # Two of four are wanted and all four are called; the two that answer are enough.
    assert [(row["participants"], row["replies"]) for row in rows] == [(4, 2), (4, 2)]


@pytest.mark.parametrize("setting", ["minimum_replies = 2", "over_selection = 0.5"])
def test_rounds_of_private_methods_depend_on_no_single_vehicle(setting: str, fleet: Path) -> None:
    text = config_text(fleet, "fedavg@private").replace(
        "batch = 16", 'batch = 16\nsampling = "poisson"'
    )
    refuse_undeployable(from_toml(text))
    with pytest.raises(SettingError, match=setting.split()[0]):
        refuse_undeployable(from_toml(text.replace("poll_seconds", f"{setting}\npoll_seconds")))


def test_a_run_that_trained_nothing_does_not_end_well() -> None:
    rows = [{"round": round, "replies": 0, "best_round": 0} for round in range(4)]
    with pytest.raises(RunError, match="fedavg has trained nothing: no reply counted in 3 rounds"):
        LogLines().on_end("fedavg", History("fedavg", rounds=rows))
    rows[2]["replies"] = 1
    LogLines().on_end("fedavg", History("fedavg", rounds=rows))


def test_one_run_at_a_time_in_a_folder(fleet: Path, tmp_path: Path) -> None:
    text, grid = config_text(fleet, rounds=1), loopback(fleet, tmp_path / "x")
    with holding(tmp_path / "run", RUN_LOCK, "taken"):
        assert is_held(tmp_path / "run", RUN_LOCK)
        with pytest.raises(RunError, match="A run is going on in"):
            deployed(text, grid, tmp_path / "run")
    assert not is_held(tmp_path / "run", RUN_LOCK)
    run = deployed(text, grid, tmp_path / "run")
    assert any("The run is finished since" in line for line in describe_run(run))


def test_a_run_whose_server_is_gone_is_interrupted(tmp_path: Path) -> None:
    run = RunState.begin(tmp_path, resume=False)
    run.note(PAUSED, "after round 2: 0 of the 1 vehicle that a round needs are there")
    assert run.doing.startswith("interrupted")
    with holding(tmp_path, RUN_LOCK, "taken"):
        assert run.doing.startswith("paused since 20") and "after round 2" in run.doing


def _same(one: Path, other: Path) -> None:
    wanted, got = weights(one), weights(other)
    assert wanted.keys() == got.keys()
    assert all(torch.equal(got[name], wanted[name]) for name in wanted)


def test_the_log_says_errors_in_the_unit_of_the_target(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "propagate", True)
    lines = LogLines()
    charge = SimpleNamespace(predicts=TARGETS["soc"])
    fleet = SimpleNamespace(source="depot", windows=lambda split: 9, settings=charge)
    row = {"replies": 2, "participants": 3, "lost": 1, "rejected": 0, "test_rmse": 0.0814}
    with caplog.at_level(logging.INFO, logger=log.name):
        lines.on_fleet(fleet)
        lines.on_start("fedavg", 0, 5)
        record = SimpleNamespace(rounds=[row], seconds={"total": 1.5})
        lines.on_round("fedavg", SimpleNamespace(round=1), record)
    said = "fedavg: round 1/5, 2 of 3 replies, 1 lost, RMSE 0.0814 points, 1.5 s"
    assert said in caplog.messages
