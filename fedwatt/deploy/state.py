"""What a deployment must not forget when its server is killed, besides its checkpoints.

It is all in RUN/deployment.json: the run's number, and that of its last secure sum.
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
    run: str
    """What vehicles file their memory under."""
    exchange: int = -1
    """Of the last secure sum; -1: there was none."""

    @classmethod
    def begin(cls, out: Path, *, resume: bool) -> "RunState":
        """A new run in the folder `out`, or the one that is there."""
        path = out / "deployment.json"
        if resume and path.exists():
            try:
                table = json.loads(path.read_text(encoding="utf-8"))
                return cls(path, str(table["run"]), int(table.get("exchange", -1)))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise RunError(
                    f"{path} is damaged: {error}. Start anew with another --out."
                ) from error
        state = cls(path, uuid4().hex)
        state.save()
        return state

    def next_exchange(self, now: int) -> int:
        """The number of the next secure sum: `now`, and above the last if the clock went back.

        Vehicles refuse a number twice, so it is on the disk before it is used.
        """
        self.exchange = max(self.exchange + 1, now)
        self.save()
        return self.exchange

    def save(self) -> None:
        """Write the file."""
        table = {"run": self.run, "exchange": self.exchange}
        write_text(self.path, json.dumps(table) + "\n")
