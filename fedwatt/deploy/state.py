"""What a deployment must not forget when its server is killed, besides its checkpoints.

It is all in RUN/deployment.json: the run's number, that of its last secure sum, how often learning
a field was begun, and what the run is doing, for `fedwatt deploy status`.
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import uuid4

from fedwatt.errors import RunError
from fedwatt.files import is_held, write_text

RUN_LOCK: Final = "run"
"""What the process that carries a run out holds its folder for."""
SUBMIT_LOCK: Final = "submit"
"""What a process that submits a run holds its folder for."""
RUNNING: Final = "running"
PAUSED: Final = "paused"
FINISHED: Final = "finished"
FAILED: Final = "ended early"
INTERRUPTED: Final = "interrupted"
"""It says that it is running, and no process is at it."""


def going_on(out: Path) -> str:
    """What to say where a run folder is another process's."""
    return f"A run is going on in {out}. Wait for its end, or choose another --out."


@dataclass
class RunState:
    """The numbers of a run."""

    path: Path
    run: str
    """What vehicles file their memory under."""
    exchange: int = -1
    """Of the last secure sum; -1: there was none."""
    learnings: int = 0
    """How often learning a field was begun; each time all noise is drawn anew."""
    releases: dict[str, int] = field(default_factory=dict)
    """How many noisy models of each private method were made, repeated rounds included."""
    status: str = RUNNING
    """What the run is doing, or how it ended."""
    since: str = ""
    """When that began, UTC."""
    about: str = ""
    """Why."""

    @classmethod
    def begin(cls, out: Path, *, resume: bool, number: str = "") -> "RunState":
        """A new run in the folder `out`, or the one that is there; by its `number`, if given."""
        path = out / "deployment.json"
        found = resume and path.exists()
        state = cls.read(path) if found else cls(path, number or uuid4().hex)
        state.note(RUNNING)
        return state

    @classmethod
    def read(cls, path: Path) -> "RunState":
        """The numbers of the run whose deployment.json is `path`."""
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            exchange, learnings = table.get("exchange", -1), table.get("learnings", 0)
            releases = {str(n): int(count) for n, count in table.get("releases", {}).items()}
            doing = (str(table.get(name, "")) for name in ("status", "since", "about"))
            return cls(path, str(table["run"]), int(exchange), int(learnings), releases, *doing)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{path} is damaged: {error}. Start anew with another --out.") from error

    def next_exchange(self, now: int) -> int:
        """The number of the next secure sum: `now`, and above the last if the clock went back.

        Vehicles refuse a number twice, so it is on the disk before it is used.
        """
        self.exchange = max(self.exchange + 1, now)
        self.save()
        return self.exchange

    def begin_learning(self) -> None:
        """Count one more attempt at the field; on the disk before any vehicle is asked."""
        self.learnings += 1
        self.save()

    def count_release(self, label: str) -> None:
        """Count one more noisy model; on the disk before anybody sees it."""
        self.releases[label] = self.releases.get(label, 0) + 1
        self.save()

    def note(self, status: str, about: str = "") -> None:
        """Write down what the run is doing from now on, and why."""
        if status != self.status or not self.since:
            self.since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")[:19]
        self.status, self.about = status, about
        self.save()

    @property
    def doing(self) -> str:
        """What the run is doing, since when and why, as one sentence for people."""
        status, about = self.status, self.about
        if status in (RUNNING, PAUSED) and not is_held(self.path.parent, RUN_LOCK):
            status, about = INTERRUPTED, "its server was stopped; --resume goes on with it"
        return f"{status} since {self.since} (UTC)" + (f": {about}" if about else "")

    def save(self) -> None:
        """Write the file."""
        table = {name: value for name, value in vars(self).items() if name != "path"}
        write_text(self.path, json.dumps(table, ensure_ascii=False) + "\n")
