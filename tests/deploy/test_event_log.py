"""RUN/events.jsonl: a line for every question to every vehicle, and what they add up to."""

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedwatt.deploy.event_log import FILE, EventLog
from fedwatt.deploy.exchange import Answer, Heard
from fedwatt.deploy.messages import Content
from fedwatt.deploy.progress import describe_run
from fedwatt.deploy.standing import Standing, fleet_lines, standings
from fedwatt.errors import RunError
from fedwatt.files import read_rows
from tests.deploy.fleets import config_text, deployed, loopback, make_fleet

ANSWER = Answer(Content({}))


def lines(folder: Path) -> list[dict[str, object]]:
    return read_rows(folder / FILE)


def test_a_question_leaves_a_line_for_each_vehicle_with_its_own_time(tmp_path: Path) -> None:
    log = EventLog(tmp_path / FILE)
    log.begin("fedavg", 3)
    nodes = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
    answers = {1: ANSWER, 2: Answer(None, "it refuses: no", "masks"), 5: Answer(None, "nonsense")}
    heard = Heard({1: 0.25, 2: 0.5, 4: 1.0, 5: 0.1}, {4: "it could not"})
    log.asked("train", nodes, answers, heard, seconds=2.0, closed=False)
    found = lines(tmp_path)
    assert [(row["vehicle"], row["event"], row.get("reason")) for row in found] == [
        ("a", "answered", None),
        ("b", "refused", "it refuses: no"),
        ("c", "late", "it did not answer within 2 s"),
        ("d", "failed", "it could not"),
        ("e", "rejected", "nonsense"),
    ]
    assert {(row["method"], row["round"], row["question"]) for row in found} == {
        ("fedavg", 3, "train")
    }
    assert [row["seconds"] for row in found] == [0.25, 0.5, 2.0, 1.0, 0.1]
    assert found[2]["at"] > found[3]["at"] > found[0]["at"]


def test_who_was_not_waited_for_is_not_late(tmp_path: Path) -> None:
    log = EventLog(tmp_path / FILE)
    log.asked("train", {"a": 1, "b": 2}, {1: ANSWER}, Heard(), seconds=2.0, closed=True)
    assert [row["event"] for row in lines(tmp_path)] == ["answered", "spare"]


def test_small_steps_of_a_sum_leave_a_line_only_where_they_fail(tmp_path: Path) -> None:
    log = EventLog(tmp_path / FILE)
    log.asked("secure-keys", {"a": 1, "b": 2}, {1: ANSWER}, Heard(), seconds=2.0, closed=False)
    assert [(row["vehicle"], row["event"]) for row in lines(tmp_path)] == [("b", "late")]
    # Its reply to the sum is then missing for the reason that the file has already.
    log.uncounted("b", "no advert came")
    log.uncounted("a", "its signature is wrong")
    assert [(row["vehicle"], row["event"]) for row in lines(tmp_path)[1:]] == [("a", "not counted")]


def event(kind: str, round: int, question: str = "train") -> dict[str, object]:
    about = {"at": f"2026-01-01T00:00:{round:02d}", "event": kind, "vehicle": "a", "reason": kind}
    return about | {"method": "m", "round": round, "question": question, "seconds": 1.0}


def after(*events: dict[str, object]) -> Standing:
    return standings(events)["a"]


def test_a_trouble_outweighs_the_answers_of_its_round_and_no_other() -> None:
    refused = after(event("refused", 1), event("answered", 1, "evaluate"))
    assert (refused.state, refused.failing, refused.success) == ("refused", 1, None)
    again = after(event("late", 1), event("late", 2), event("rejected", 2), event("late", 3))
    assert (again.state, again.failing) == ("late", 3)
    well = after(event("late", 1), event("answered", 2))
    assert (well.state, well.failing, well.trouble) == ("on time", 0, event("late", 1))
    late_once_more = after(event("late", 1), event("answered", 2), event("late", 3))
    assert late_once_more.failing == 1
    spare = after(event("answered", 1), event("spare", 2))
    assert (spare.state, spare.asked, spare.answered) == ("on time", 2, 1)


def test_a_reply_that_did_not_count_is_no_success() -> None:
    found = after(event("answered", 1), event("answered", 2), event("not counted", 2))
    assert (found.state, found.success) == ("failing", event("answered", 1))


def test_who_is_turned_away_and_let_in_is_no_longer_in_trouble() -> None:
    away = {"at": "2026", "event": "turned away", "vehicle": "a", "reason": "other features"}
    found = after(away, away, away)
    assert (found.state, found.failing) == ("turned away", 3)
    found.take({"at": "2026", "event": "enrolled", "vehicle": "a", "version": "0.1.0"})
    assert (found.state, found.failing, found.version) == ("waiting", 0, "0.1.0")


def test_a_vehicle_rests_until_its_round_and_is_asked_again() -> None:
    away = event("resting", 2) | {"until": 5}
    found = after(event("late", 1), event("late", 2), away)
    assert (found.state, found.failing) == ("resting", 2)
    # Of the next method nothing is known yet.
    assert after(away, event("late", 1) | {"method": "n"}).state == "late"
    # It judges models meanwhile.
    judging = after(event("late", 2), away, event("answered", 3, "evaluate"))
    assert (judging.state, judging.failing) == ("resting", 0)
    shown = list(fleet_lines([judging]))
    assert shown[1] == "  left out of training until round 5: resting"
    assert after(event("late", 2), away, event("answered", 5, "evaluate")).state == "on time"
    assert after(event("late", 2), away, event("late", 5)).state == "late"


def test_a_terminal_shows_fifty_vehicles_and_counts_the_others() -> None:
    many = [Standing(f"car-{n}") for n in range(60)]
    shown = list(fleet_lines(many))
    assert len(shown) == 51
    assert shown[-1] == "And 10 vehicles more: 10 waiting."


def test_status_before_the_first_round_is_no_error(tmp_path: Path, server_identity: None) -> None:
    with pytest.raises(RunError, match="There is no run of a real fleet in"):
        list(describe_run(tmp_path))
    fleet = make_fleet(tmp_path / "fleet", 4)
    grid = loopback(fleet, tmp_path / "state")
    run = tmp_path / "run"

    def interrupted(kind: str, node: int, reply: object) -> object:
        if kind == "evaluate":
            raise KeyboardInterrupt
        return reply

    grid.tamper = interrupted
    with pytest.raises(KeyboardInterrupt):
        deployed(config_text(fleet), grid, run)
    said = list(describe_run(run))
    assert said[0] == "No round is complete yet."
    assert said[1].startswith("The run is interrupted since")
    assert said[2] == "car-001: waiting, no success yet"
