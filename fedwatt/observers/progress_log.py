"""What a run says of itself while it goes on: RUN/progress.jsonl, a line an event, only added to.

    {"event": "fleet", "at": …, "vehicles": 20, "source": …, "unit": "Wh"}
    {"event": "start", "at": …, "method": "fedavg", "done": 0, "rounds": 30}
    {"event": "round", "at": …, "method": "fedavg", "round": 1, "seconds": 0.4,
     "rows": [a row of rounds.parquet for each seed], "vehicles": {"car-001": 48.2, …}}
    {"event": "end", "at": …, "method": "fedavg"}
    {"event": "finish", "at": …}

A run that goes on after a kill repeats the rounds since its last checkpoint: what follows a "start"
counts in place of all rounds after its `done`. Numbers that are not known are null.
"""

import json
from collections.abc import Iterable, Set
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fedwatt.files import parse_json, writing
from fedwatt.observers.observer import Observer

if TYPE_CHECKING:
    from fedwatt.federation import History, RoundRecord, State
    from fedwatt.windows import Fleet

FILE: Final = "progress.jsonl"


class ProgressLog(Observer):
    """Adds a line to the log of a run for each of its events."""

    def __init__(self, run: Path) -> None:
        self.path = run / FILE
        self.known: dict[str, set[int]] = {}
        """Rounds of each method that are in the log."""
        if self.path.exists():
            with writing(self.path), self.path.open("r+b") as log:
                whole = log.read()
                log.truncate(whole.rfind(b"\n") + 1)  # a kill may have cut the last line
            for label, rounds in rounds_in(events(whole)).items():
                self.known[label] = set(rounds)

    def on_fleet(self, fleet: "Fleet") -> None:
        """Who takes part."""
        about = {"vehicles": len(fleet.clients), "source": fleet.source}
        self.add("fleet", **about, unit=fleet.settings.predicts.unit)

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """A method starts, or goes on."""
        self.known[label] = {t for t in self.known.get(label, ()) if t <= done}
        self.add("start", method=label, done=done, rounds=rounds)

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """The numbers of a round."""
        self.known[label].add(state.round)
        self.add(
            "round",
            method=label,
            round=state.round,
            seconds=record.seconds["total"],
            rows=record.rounds,
            vehicles=record.by_vehicle,
        )

    def on_end(self, label: str, history: "History") -> None:
        """A method is done; rounds that were trained on other machines are added now."""
        seconds = {row["round"]: row["total"] for row in history.timing}
        for round, rows in rounds_beside(history, self.known[label]):
            self.add("round", method=label, round=round, seconds=seconds[round], rows=rows)
        self.add("end", method=label)

    def on_finish(self, run: Path) -> None:
        """The folder is complete."""
        self.add("finish")

    def add(self, event: str, **about: Any) -> None:
        """Write a line, whole or not at all as far as any reader can see."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"event": event, "at": at} | _plain(about), ensure_ascii=False) + "\n"
        with writing(self.path), self.path.open("a", encoding="utf-8") as log:
            log.write(line)


def rounds_beside(history: "History", seen: Set[int]) -> list[tuple[int, list[dict[str, Any]]]]:
    """Number and rows of each trained round that is not among those `seen`, in their order."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in history.rounds:
        if row["round"] and row["round"] not in seen:
            found.setdefault(row["round"], []).append(row)
    return sorted(found.items())


def events(log: bytes) -> list[dict[str, Any]]:
    """The complete lines of a log."""
    whole = log[: log.rfind(b"\n") + 1]
    return [parse_json(line) for line in whole.splitlines() if line]


def rounds_in(
    lines: Iterable[dict[str, Any]], known: dict[str, dict[int, dict[str, Any]]] | None = None
) -> dict[str, dict[int, dict[str, Any]]]:
    """Method → round → the line that counts; `known` is what earlier lines led to.

    >>> again = [{"event": "start", "method": "fedavg", "done": 1}]
    >>> two = [{"event": "round", "method": "fedavg", "round": t, "seconds": t} for t in (1, 2)]
    >>> rounds_in([*two, *again])["fedavg"].keys()
    dict_keys([1])
    """
    found: dict[str, dict[int, dict[str, Any]]] = {} if known is None else known
    for line in lines:
        own = found.setdefault(line["method"], {}) if "method" in line else {}
        if line["event"] == "start":
            for later in [round for round in own if round > line["done"]]:
                del own[later]
        elif line["event"] == "round":
            own[line["round"]] = line
    return found


def _plain(value: Any) -> Any:
    """A value as JSON has it: null for what is no finite number."""
    if isinstance(value, dict):
        return {name: _plain(own) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(own) for own in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value
