"""The log of a run: what it says, and that a run that goes on never says a round twice."""

import json
from pathlib import Path

from fedwatt.federation import History
from fedwatt.runs.observers import FILE, ProgressLog, events, rounds_in


def lines(*rounds: int) -> list[dict]:
    return [{"event": "round", "method": "fedavg", "round": t, "n": t} for t in rounds]


def start(done: int) -> dict:
    return {"event": "start", "method": "fedavg", "done": done}


def test_rounds_after_a_restart_count_in_place_of_those_before() -> None:
    again = [line | {"n": 10 + line["round"]} for line in lines(2, 3)]
    rounds = rounds_in([start(0), *lines(1, 2, 3), start(1), *again])["fedavg"]
    assert {t: line["n"] for t, line in rounds.items()} == {1: 1, 2: 12, 3: 13}


def test_a_line_that_a_kill_has_cut_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.write_text('{"event": "finish"}\n{"event": "rou')
    assert events(file.read_bytes()) == [{"event": "finish"}]
    ProgressLog(tmp_path).add("fleet", vehicles=3)
    assert [line["event"] for line in events(file.read_bytes())] == ["finish", "fleet"]


def test_what_is_not_a_number_is_null(tmp_path: Path) -> None:
    ProgressLog(tmp_path).add("round", rows=[{"rmse": float("nan"), "learning_rate": 0.5}])
    (line,) = (tmp_path / FILE).read_text().splitlines()
    assert json.loads(line)["rows"] == [{"rmse": None, "learning_rate": 0.5}]


def test_rounds_of_other_machines_are_added_at_the_end(tmp_path: Path) -> None:
    log = ProgressLog(tmp_path)
    log.on_start("fedavg", 2, 2)
    rows = [{"round": t, "seed": 1, "test_rmse": 50.0 - t} for t in (0, 1, 2)]
    log.on_end("fedavg", History("fedavg", rows, [], [{"round": t, "total": t} for t in (0, 1, 2)]))
    rounds = rounds_in(events((tmp_path / FILE).read_bytes()))["fedavg"]
    assert {t: line["rows"][0]["test_rmse"] for t, line in rounds.items()} == {1: 49.0, 2: 48.0}
