"""A tracker of a run that trained on other machines gets every round, once and in order."""

from dataclasses import dataclass, field
from types import SimpleNamespace

from fedwatt.federation import History, RoundRecord
from fedwatt.runs.observers import Observer
from fedwatt.runs.trackers import Replayed


@dataclass
class EventLog(Observer):
    calls: list[tuple] = field(default_factory=list)

    def on_start(self, label, done, rounds) -> None:
        self.calls.append(("start", label, done))

    def on_round(self, label, state, record) -> None:
        self.calls.append((state.round, [row["test_rmse"] for row in record.rounds]))

    def on_end(self, label, history) -> None:
        self.calls.append(("end", label))


def row(round: int, seed: int, rmse: float) -> dict:
    return {"round": round, "seed": seed, "test_rmse": rmse}


def test_rounds_of_the_history_are_told_at_the_end() -> None:
    messages = EventLog()
    observer = Replayed(messages)
    observer.on_start("fedavg", 3, 3)
    # The third round was trained here; rows of the others lie in the history, by seeds.
    observer.on_round("fedavg", SimpleNamespace(round=3), RoundRecord([row(3, 1, 7.0)], [], {}))
    rows = [row(0, 1, 99.0), row(2, 1, 8.0), row(1, 1, 9.0), row(1, 2, 9.5), row(3, 1, 7.0)]
    observer.on_end("fedavg", History("fedavg", rounds=rows))
    assert messages.calls == [
        ("start", "fedavg", 0),
        (3, [7.0]),
        (1, [9.0, 9.5]),
        (2, [8.0]),
        ("end", "fedavg"),
    ]
