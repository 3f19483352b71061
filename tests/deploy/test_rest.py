"""Vehicles that miss one round after the other are left out for some, and then asked again."""

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.app import RecordDict

from fedwatt.deploy.event_log import FILE
from fedwatt.deploy.progress import describe_run
from fedwatt.deploy.rest import MOST_ROUNDS, Rest, rested
from fedwatt.files import read_rows
from fedwatt.runs.tables import read_table
from tests.deploy.fleets import config_text, deployed, loopback, make_fleet
from tests.deploy.test_remote_fleet import NOISY

FROZEN = 1
"""The node of car-004 (`fleets.loopback`)."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("rest") / "fleet")


def text(fleet: Path, rounds: int, more: str = "", method: str = "fedavg") -> str:
    found = config_text(fleet, method, rounds=rounds)
    found = found.replace("participation = 0.7", "participation = 1.0")
    deploy = "round_seconds = 0.05\nevaluation_seconds = 0.05\n"
    return found.replace("round_seconds = 5\n", deploy + more)


def frozen(kind: str, node: int, reply: RecordDict) -> RecordDict | None:
    return None if node == FROZEN and kind == "train" else reply


def training_rounds(run: Path, vehicle: str = "car-004") -> list[int]:
    """Rounds in which a vehicle was called, from 1 on."""
    rows = read_table(run, "clients").to_pylist()
    return [row["round"] for row in rows if row["vehicle"] == vehicle]


def events(run: Path, kind: str) -> list[dict]:
    return [row for row in read_rows(run / FILE) if row["event"] == kind]


def test_a_frozen_vehicle_is_left_out_ever_longer(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    grid.tamper = frozen
    run = deployed(text(fleet, 11), grid, tmp_path / "run")
    # Missed 1 and 2, so left out of 3 and 4; missed 5, so left out of four; missed 10.
    assert training_rounds(run) == [1, 2, 5, 10]
    assert training_rounds(run, "car-001") == list(range(1, 12))
    assert [(row["round"], row["until"]) for row in events(run, "resting")] == [
        (2, 5),
        (5, 10),
        (10, 19),
    ]
    reason = events(run, "resting")[0]["reason"]
    assert reason.startswith("it did not answer within") and reason.endswith("2 times in a row")
    said = list(describe_run(run))
    place = next(n for n, line in enumerate(said) if line.startswith("car-004: resting"))
    assert said[place + 1].startswith("  left out of training until round 19: it did not answer")
    # It judged every model meanwhile.
    judged = [row for row in events(run, "answered") if row["question"] == "evaluate"]
    assert sum(row["vehicle"] == "car-004" for row in judged) >= 12


def test_judging_is_counted_apart(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    grid.tamper = lambda kind, node, reply: None if node == FROZEN and kind == "evaluate" else reply
    run = deployed(text(fleet, 5), grid, tmp_path / "run")
    assert training_rounds(run) == [1, 2, 3, 4, 5]
    late = [row["round"] for row in events(run, "late") if row["question"] == "evaluate"]
    # The models of rounds 0, 1 and 4, and the mean of two at the end, if there is one.
    assert late[:3] == [0, 1, 4]


def test_an_answer_ends_it_and_a_single_miss_changes_nothing(fleet: Path, tmp_path: Path) -> None:
    grid, missed = loopback(fleet, tmp_path / "state"), iter((True, False, True, True, False))
    grid.tamper = lambda kind, node, reply: (
        None if node == FROZEN and kind == "train" and next(missed, False) else reply
    )
    run = deployed(text(fleet, 9), grid, tmp_path / "run")
    # Missed 1, 3 and 4, so left out of 5 and 6; well again from 7 on.
    assert training_rounds(run) == [1, 2, 3, 4, 7, 8, 9]
    assert [row["until"] for row in events(run, "resting")] == [7]


def test_a_resumed_run_goes_on_alike(fleet: Path, tmp_path: Path) -> None:
    whole = loopback(fleet, tmp_path / "whole-state")
    whole.tamper = frozen
    deployed(text(fleet, 6), whole, tmp_path / "whole")
    parts = loopback(fleet, tmp_path / "state")
    parts.tamper = frozen
    for stop, resume in ((1, False), (2, True), (3, True), (0, True)):
        try:
            deployed(text(fleet, 6), parts, tmp_path / "run", stop=stop, resume=resume)
        except KeyboardInterrupt:
            continue
    assert training_rounds(tmp_path / "run") == training_rounds(tmp_path / "whole") == [1, 2, 5]
    same = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert same[0] == same[1]


@pytest.mark.parametrize(
    ("more", "method"), [("rest_after = 0\n", "fedavg"), ("", "fedavg@private")]
)
def test_nobody_rests_where_it_is_switched_off_or_draws_are_secret(
    more: str, method: str, fleet: Path, tmp_path: Path
) -> None:
    config = text(fleet, 4, more, method)
    if "private" in method:
        config = config.replace("batch = 16", 'batch = 16\nsampling = "poisson"') + NOISY
    grid = loopback(fleet, tmp_path / "state")
    grid.tamper = frozen
    run = deployed(config, grid, tmp_path / "run")
    assert training_rounds(run) == [1, 2, 3, 4]
    assert events(run, "resting") == []


def test_nobody_rests_if_too_few_would_be_left(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    grid.tamper = lambda kind, node, reply: None if kind == "train" and node < 3 else reply
    run = deployed(text(fleet, 4, "minimum_replies = 2\n"), grid, tmp_path / "run")
    assert training_rounds(run) == [1, 2]
    again = loopback(fleet, tmp_path / "again-state")
    again.tamper = grid.tamper
    run = deployed(text(fleet, 4, "minimum_replies = 3\n"), again, tmp_path / "again")
    assert training_rounds(run) == [1, 2, 3, 4]


def test_rounds_double_up_to_a_limit() -> None:
    rest, rounds = Rest(), []
    for _ in range(40):
        after = rest.after_miss(0, after=3)
        rounds.append(max(after.until - 1, 0))
        rest = after
    assert rounds[:6] == [0, 0, 2, 4, 8, 16]
    assert rounds[-1] == MOST_ROUNDS


def test_only_who_was_asked_is_counted() -> None:
    before = {"a": Rest(1), "b": Rest(1), "c": Rest(1)}
    found = rested(before, ["a", "b", "d"], ["b", "c"], 4, after=2)
    assert found == {"b": Rest(2, 7), "c": Rest(1)}
