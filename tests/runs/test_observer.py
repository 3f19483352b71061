"""Several observers as one, and an observer in a real run."""

from collections.abc import Callable
from pathlib import Path

from fedwatt.runs.config import from_toml
from fedwatt.runs.observers import FILE, Observer, Observers, events
from fedwatt.runs.run import Run

SMALL = """
seeds = [1, 2]
[fleet]
vehicles = 3
trips = 3
[data]
window = 10
stride = 20
evaluation_stride = 40
[model]
hidden = [4]
[training]
rounds = 2
participation = 1.0
[baselines]
enabled = false
[[method]]
name = "fedavg"
"""


class Calls(Observer):
    def __init__(self) -> None:
        self.seen: list[object] = []

    def on_start(self, label, done, rounds):
        self.seen.append(("start", label, done, rounds))

    def on_round(self, label, state, record):
        self.seen.append(("round", state.round, sorted(record.by_vehicle)))

    def on_finish(self, run):
        self.seen.append(("finish", (run / "vehicles.parquet").exists()))


EVENTS = {
    "on_elevation": ("learned", "elevation"),
    "on_vehicle": (1, 3),
    "on_fleet": ("fleet",),
    "on_start": ("fedavg", 0, 2),
    "on_round": ("fedavg", "state", "record"),
    "on_end": ("fedavg", "history"),
    "on_baseline": ("own mean",),
    "on_finish": (Path("run"),),
}


class Everything:
    """Writes down every event, and is no `Observer`."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *subject: self.seen.append((event, subject))


def test_every_event_is_forwarded() -> None:
    assert set(EVENTS) == {name for name in vars(Observer) if name.startswith("on_")}
    each = Everything(), Everything()
    for event, subject in EVENTS.items():
        getattr(Observers(each), event)(*subject)
    assert each[0].seen == each[1].seen == list(EVENTS.items())


class Rounds:
    """Has one of the events, and is no `Observer`."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_round(self, label, state, record) -> None:
        self.seen.append(state.round)


def test_an_observer_may_lack_events(tmp_path: Path) -> None:
    rounds = Rounds()
    Run(from_toml(SMALL), out=tmp_path / "run", observer=rounds).execute()
    assert rounds.seen == [1, 2]


def test_observers_are_called_in_order_and_the_log_has_every_round(tmp_path: Path) -> None:
    first = Calls()
    second = Calls()
    second.seen = first.seen  # so that the order can be seen
    Run(from_toml(SMALL), out=tmp_path / "run", observer=Observers((first, second))).execute()
    cars = ["car-001", "car-002", "car-003"]
    once = [
        ("start", "fedavg", 0, 2),
        ("round", 1, cars),
        ("round", 2, cars),
        ("finish", True),
    ]
    assert first.seen == [call for call in once for _ in range(2)]
    logged = events((tmp_path / "run" / FILE).read_bytes())
    kinds = [line["event"] for line in logged]
    assert kinds == ["fleet", "start", "round", "round", "end", "finish"]
    assert [row["seed"] for row in logged[2]["rows"]] == [1, 2]
