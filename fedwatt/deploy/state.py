"""What a deployment must not forget when its server is killed, besides its checkpoints.

It is all in RUN/deployment.json: the run's number, that of its last secure sum, and how often
learning a field was begun.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from fedwatt.errors import RunError
from fedwatt.files import write_text


@dataclass
class RunState:
    """The numbers of a run."""

    path: Path
    run: str  # what vehicles file their memory under
    exchange: int = -1  # of the last secure sum; -1: there was none
    learnings: int = 0  # how often learning a field was begun; each time all noise is drawn anew

    @classmethod
    def begin(cls, out: Path, *, resume: bool, number: str = "") -> "RunState":
        """A new run in the folder `out`, or the one that is there; by its `number`, if given."""
        path = out / "deployment.json"
        if resume and path.exists():
            return cls.read(path)
        state = cls(path, number or uuid4().hex)
        state.save()
        return state

    @classmethod
    def read(cls, path: Path) -> "RunState":
        """The numbers of the run whose deployment.json is `path`."""
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            exchange, learnings = table.get("exchange", -1), table.get("learnings", 0)
            return cls(path, str(table["run"]), int(exchange), int(learnings))
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

    def save(self) -> None:
        """Write the file."""
        table = {"run": self.run, "exchange": self.exchange, "learnings": self.learnings}
        write_text(self.path, json.dumps(table) + "\n")
