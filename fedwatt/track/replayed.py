"""Rounds that were trained on other machines, shown to a tracker once their method is done."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from fedwatt.federation import History, RoundRecord, State
from fedwatt.observers import Observer
from fedwatt.observers.progress_log import rounds_beside


@dataclass
class Replayed(Observer):
    """A tracker of a run whose methods train elsewhere: it gets their rounds from the history."""

    tracker: Observer
    seen: set[int] = field(default_factory=set)

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """Count rounds that are done already as still to come."""
        self.seen = set()
        self.tracker.on_start(label, 0, rounds)

    def on_round(self, label: str, state: State, record: RoundRecord) -> None:
        """Pass on a round that was trained here after all."""
        self.seen.add(state.round)
        self.tracker.on_round(label, state, record)

    def on_end(self, label: str, history: History) -> None:
        """All rounds that the tracker has not seen, in their order."""
        for number, rows in rounds_beside(history, self.seen):
            state = cast(State, SimpleNamespace(round=number))  # trackers read nothing else of it
            self.tracker.on_round(label, state, RoundRecord(rows, [], {}))
        self.tracker.on_end(label, history)

    def on_finish(self, run: Path) -> None:
        """Pass on that the folder is complete."""
        self.tracker.on_finish(run)
