"""Facts from the files of a run, read from where the last look ended."""

from bisect import bisect_left
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from fedwatt.deploy.server.events import ANSWERED, FAULTS, FILE, TROUBLES, Faults
from fedwatt.deploy.server.run_state import RunState
from fedwatt.deploy.server.status import Standing, standings
from fedwatt.files import parse_json
from fedwatt.runs.observers import FILE as PROGRESS
from fedwatt.runs.observers import rounds_in

BOUNDS: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Upper bounds of the counts of seconds that answers took."""
KEPT: Final = 50
"""Events of a vehicle that can be looked at."""
Round = tuple[str, int]


@dataclass
class Tail:
    """A place in a file of JSON lines that is only ever added to."""

    path: Path
    at: int = 0
    """Bytes that were read."""

    def new(self) -> list[tuple[int, int, dict[str, Any]]]:
        """Return the complete lines since the last look, each with its first byte and its end."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.at)
                found = file.read()
        except FileNotFoundError:
            return []
        lines = []
        for line in found[: found.rfind(b"\n") + 1].splitlines(keepends=True):
            lines.append((self.at, self.at + len(line), parse_json(line)))
            self.at += len(line)
        return lines

    def between(self, start: int, end: int) -> list[dict[str, Any]]:
        """Return the lines that begin at byte `start` and end at byte `end`."""
        with self.path.open("rb") as file:
            file.seek(start)
            return [parse_json(line) for line in file.read(end - start).splitlines() if line]


@dataclass
class RunFacts:
    """A run folder; it need not be there yet."""

    folder: Path
    events: Tail = field(init=False)
    progress: Tail = field(init=False)
    roster: Tail = field(init=False)
    members: set[str] = field(default_factory=set)
    """Vehicles that have enrolled."""
    standings: dict[str, Standing] = field(default_factory=dict)
    rounds: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    """The line of progress.jsonl for each method and round."""
    starts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The line that says how many rounds a method has."""
    ended: set[str] = field(default_factory=set)
    unit: str = "Wh"
    began: str = ""
    """When the first line of progress.jsonl was written."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """How often each event came."""
    seconds: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    """Answers by the seconds that they took: up to each of `BOUNDS`, and longer."""
    seconds_sum: float = 0.0
    by_round: dict[Round, tuple[int, int]] = field(default_factory=dict)
    """First byte and end of each round's events."""
    by_vehicle: dict[str, deque[int]] = field(default_factory=dict)
    """Bytes at which a vehicle's last events begin."""
    latest: Round = ("", 0)
    in_round: dict[str, str] = field(default_factory=dict)
    """What became of the vehicles that the latest round asked; a trouble outweighs an answer."""

    def __post_init__(self) -> None:
        self.events = Tail(self.folder / FILE)
        self.progress = Tail(self.folder / PROGRESS)
        self.roster = Tail(self.folder / "members.jsonl")

    def refresh(self) -> None:
        """Read what was added."""
        self.members |= {line["name"] for _, _, line in self.roster.new()}
        for start, end, line in self.events.new():
            self._event(start, end, line)
        for _, _, line in self.progress.new():
            self._progress(line)

    def _event(self, start: int, end: int, line: dict[str, Any]) -> None:
        standings([line], self.standings)
        event = line["event"]
        name = line["vehicle"]
        self.outcomes[event] += 1
        self.by_vehicle.setdefault(name, deque(maxlen=KEPT)).append(start)
        if "round" in line:
            now = line["method"], line["round"]
            if now != self.latest:
                self.latest = now
                self.in_round.clear()
            # A round that a killed server began is asked again: its later events count.
            first = self.by_round[now][0] if self.in_round else start
            self.by_round[now] = first, end
            if self.in_round.get(name) not in TROUBLES:
                self.in_round[name] = event
        if event == ANSWERED:
            self.seconds[bisect_left(BOUNDS, line["seconds"])] += 1
            self.seconds_sum += line["seconds"]

    def _progress(self, line: dict[str, Any]) -> None:
        self.began = self.began or line["at"]
        rounds_in([line | {"vehicles": None}], self.rounds)
        if line["event"] == "fleet":
            self.unit = line["unit"]
        elif line["event"] == "start":
            self.starts[line["method"]] = line
            self.ended.discard(line["method"])
        elif line["event"] == "end":
            self.ended.add(line["method"])

    @property
    def faults(self) -> Faults:
        """Faults of vehicles, as last written."""
        return Faults.read(self.folder / FAULTS)

    @property
    def state(self) -> RunState | None:
        """State of the run; None before it begins."""
        path = self.folder / "deployment.json"
        return RunState.read(path) if path.exists() else None

    @property
    def method(self) -> str:
        """The method that trained last."""
        return next(reversed(self.starts), "")

    def last_model(self) -> float | None:
        """When the last round was completed, in seconds since 1970; None: none was."""
        times = [line["at"] for own in self.rounds.values() for line in own.values()]
        return datetime.fromisoformat(max(times)).timestamp() if times else None

    def vehicle_events(self, name: str) -> list[dict[str, Any]]:
        """Return a vehicle's last events, the newest first."""
        found = [self._at(start) for start in self.by_vehicle.get(name, ())]
        return found[::-1]

    def round_events(self, method: str, round: int) -> list[dict[str, Any]]:
        """Return the events of a round."""
        if (method, round) not in self.by_round:
            return []
        lines = self.events.between(*self.by_round[method, round])
        wanted = (method, round)
        return [line for line in lines if (line.get("method"), line.get("round")) == wanted]

    def replies(self) -> dict[str, int]:
        """Return the outcomes of the latest round and the number of vehicles of each."""
        return dict(Counter(self.in_round.values()))

    def _at(self, start: int) -> dict[str, Any]:
        with self.events.path.open("rb") as file:
            file.seek(start)
            return self.events.between(start, start + len(file.readline()))[0]


def newest_run(folder: Path) -> Path:
    """Return the run in a folder: itself, or the one below it that was begun or went on last."""
    if (folder / "deployment.json").exists():
        return folder
    found = [path.parent for path in folder.glob("*/deployment.json")]
    return max(found, key=lambda run: (run / "deployment.json").stat().st_mtime, default=folder)
