"""Observers: objects that a run calls at each step, and the progress log that every run writes.

    on_elevation → on_vehicle → … → on_fleet
    (on_start → on_round → … → on_round → on_end) for each method
    on_baseline → … → on_finish

An observer overrides what it needs and may end the run by raising. It sees a round after the round
is complete, so nothing that it does changes a number. Any class with some of these methods will do.

The progress log, RUN/progress.jsonl, has one line per event and is append-only:

    {"event": "fleet", "at": …, "vehicles": 20, "source": …, "simulated": true, "unit": "Wh"}
    {"event": "start", "at": …, "method": "fedavg", "done": 0, "rounds": 30}
    {"event": "round", "at": …, "method": "fedavg", "round": 1, "seconds": 0.4,
     "rows": [a row of rounds.parquet for each seed], "vehicles": {"car-001": 48.2, …}}
    {"event": "end", "at": …, "method": "fedavg"}
    {"event": "finish", "at": …}

A run that is continued after a kill repeats the rounds since its last checkpoint: lines after a
"start" replace all rounds after its `done`. Numbers that are not known are null.
"""

import json
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedwatt.files import parse_json, writing

if TYPE_CHECKING:
    from fedwatt.elevation.learn import Learned
    from fedwatt.elevation.settings import ElevationSettings
    from fedwatt.federation import History, RoundRecord, State
    from fedwatt.windows import Fleet


class Observer:
    """A method for each event of a run; subclasses override those that they need."""

    def on_elevation(self, learned: "Learned", elevation: "ElevationSettings") -> None:
        """Handle the elevation map that simulated vehicles have learned before the first round."""

    def on_vehicle(self, built: int, of: int) -> None:
        """Handle progress in building simulated vehicles: `built` of `of` are ready."""

    def on_fleet(self, fleet: "Fleet") -> None:
        """Handle the loaded fleet."""

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """Handle the start of a method, or its continuation after `done` of its `rounds`."""

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """Handle the end of a round; `state.round` is its number."""

    def on_end(self, label: str, history: "History") -> None:
        """Handle the end of a method."""

    def on_baseline(self, name: str) -> None:
        """Handle a finished baseline (`fedwatt.evaluation`)."""

    def on_finish(self, run: Path) -> None:
        """Handle the end of all methods; their tables and models are in the folder `run`."""


SILENT = Observer()
"""Follows what nobody wants to hear of."""


def _forwarded(event: str) -> Callable[..., None]:
    """Return a method that calls `event` of each of several observers that has it."""

    def forward(self: "Observers", *arguments: Any) -> None:
        for observer in self.each:
            getattr(observer, event, getattr(SILENT, event))(*arguments)

    return forward


@dataclass(frozen=True)
class Observers(Observer):
    """Several observers as one, called in their order."""

    each: Sequence[Observer]


for _event in [name for name in vars(Observer) if name.startswith("on_")]:
    setattr(Observers, _event, _forwarded(_event))


@dataclass(frozen=True)
class OnRound(Observer):
    """Calls a function, where there is one, with the state and the record of each round."""

    call: "Callable[[State, RoundRecord], None] | None" = None

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """Handle the end of a round."""
        if self.call is not None:
            self.call(state, record)


FILE = "progress.jsonl"


class ProgressLog(Observer):
    """Adds a line to the log of a run for each of its events."""

    def __init__(self, run: Path) -> None:
        self.path = run / FILE
        self.logged_rounds: dict[str, set[int]] = {}
        """Rounds of each method that are in the log."""
        if self.path.exists():
            with writing(self.path), self.path.open("r+b") as log:
                content = log.read()
                log.truncate(content.rfind(b"\n") + 1)  # a kill may have cut the last line
            for label, rounds in rounds_in(events(content)).items():
                self.logged_rounds[label] = set(rounds)

    def on_fleet(self, fleet: "Fleet") -> None:
        """Write the participating vehicles."""
        fields = {
            "vehicles": len(fleet.clients),
            "source": fleet.source,
            "simulated": all(client.simulated for client in fleet.at_hand),
        }
        self.add("fleet", **fields, unit=fleet.settings.predicts.unit)

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """Write the start or continuation of a method."""
        self.logged_rounds[label] = {t for t in self.logged_rounds.get(label, ()) if t <= done}
        self.add("start", method=label, done=done, rounds=rounds)

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """Write the numbers of a round."""
        self.logged_rounds[label].add(state.round)
        self.add(
            "round",
            method=label,
            round=state.round,
            seconds=record.seconds["total"],
            rows=record.rounds,
            vehicles=record.by_vehicle,
        )

    def on_end(self, label: str, history: "History") -> None:
        """Write the end of a method, after rounds that were trained on other machines."""
        seconds = {row["round"]: row["total"] for row in history.timing}
        for round, rows in rounds_beside(history, self.logged_rounds[label]):
            self.add("round", method=label, round=round, seconds=seconds[round], rows=rows)
        self.add("end", method=label)

    def on_finish(self, run: Path) -> None:
        """Write that the folder is complete."""
        self.add("finish")

    def add(self, event: str, **fields: Any) -> None:
        """Write a line, whole or not at all as far as any reader can see."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"event": event, "at": at} | _plain(fields), ensure_ascii=False) + "\n"
        with writing(self.path), self.path.open("a", encoding="utf-8") as log:
            log.write(line)


def rounds_beside(history: "History", seen: Set[int]) -> list[tuple[int, list[dict[str, Any]]]]:
    """Return number and rows of each trained round that is not among those `seen`, in their
    order.
    """
    rounds: dict[int, list[dict[str, Any]]] = {}
    for row in history.rounds:
        if row["round"] and row["round"] not in seen:
            rounds.setdefault(row["round"], []).append(row)
    return sorted(rounds.items())


def events(log: bytes) -> list[dict[str, Any]]:
    """Return the complete lines of a log."""
    complete = log[: log.rfind(b"\n") + 1]
    return [parse_json(line) for line in complete.splitlines() if line]


def rounds_in(
    lines: Iterable[dict[str, Any]], earlier: dict[str, dict[int, dict[str, Any]]] | None = None
) -> dict[str, dict[int, dict[str, Any]]]:
    """Return method → round → the line that counts; `earlier` is that of earlier lines.

    >>> again = [{"event": "start", "method": "fedavg", "done": 1}]
    >>> two = [{"event": "round", "method": "fedavg", "round": t, "seconds": t} for t in (1, 2)]
    >>> rounds_in([*two, *again])["fedavg"].keys()
    dict_keys([1])
    """
    rounds: dict[str, dict[int, dict[str, Any]]] = {} if earlier is None else earlier
    for line in lines:
        method_rounds = rounds.setdefault(line["method"], {}) if "method" in line else {}
        if line["event"] == "start":
            for later in [round for round in method_rounds if round > line["done"]]:
                del method_rounds[later]
        elif line["event"] == "round":
            method_rounds[line["round"]] = line
    return rounds


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: null for what is no finite number."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value
