"""State of a deployed run besides its checkpoints: RUN/deployment.json and RUN/sums.

deployment.json has the plan's digest, the number of the last secure aggregation, how many noisy
models were made, and what the run is doing, for `fedwatt deploy status`. RUN/sums has the totals
of the last secure aggregations: vehicles contribute to each once, so a server that is killed
between a total and its checkpoint continues with the total.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedwatt.deploy.wire import Content, pack, unpack
from fedwatt.errors import DataError, RunError
from fedwatt.files import is_held, oldest_first, write_bytes, write_text

RUN_LOCK = "run"
"""What the process that carries a run out holds its folder for."""
SUBMIT_LOCK = "submit"
FILE = "deployment.json"
RUNNING = "running"
PAUSED = "paused"
FINISHED = "finished"
FAILED = "ended early"
INTERRUPTED = "interrupted"
KEPT_TOTALS = 256
"""More than learning maps and routes takes."""


def going_on(out: Path) -> str:
    """Return the error message for a run folder that another process writes to."""
    return f"A run is going on in {out}. Wait for its end, or choose another --out."


@dataclass(frozen=True)
class SumTotal:
    """Totals of a secure aggregation, its survivors, and why other vehicles were rejected."""

    sums: Mapping[str, NDArray[Any]]
    survivors: tuple[str, ...]
    rejected: Mapping[str, str] = field(default_factory=dict)


@dataclass
class RunState:
    """State of a deployed run in RUN/deployment.json: plan, counts and status."""

    path: Path
    plan: str
    """Digest of its plan."""
    exchange: int = -1
    """Of the last secure aggregation; -1: there was none."""
    releases: dict[str, int] = field(default_factory=dict)
    """How many noisy models of each private method were made, repeated rounds included."""
    status: str = RUNNING
    since: str = ""
    """When the status began, UTC."""
    reason: str = ""
    """Why it does that."""

    @classmethod
    def begin(cls, out: Path, plan: str, *, resume: bool) -> "RunState":
        """Return the state of a new run in the folder `out`, or of the one that is there."""
        path = out / FILE
        state = cls.read(path) if resume and path.exists() else cls(path, plan)
        if state.plan != plan:
            raise RunError(
                f"{out} holds a run of another plan. Continue it with that plan, or choose another "
                "--out."
            )
        state.note(RUNNING)
        return state

    @classmethod
    def read(cls, path: Path) -> "RunState":
        """Return the numbers of the run whose deployment.json is `path`."""
        try:
            return cls(path, **json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"{path} is damaged: {error}. Start anew with another --out.") from error

    def next_exchange(self, now: int) -> int:
        """Return the number of the next secure aggregation: `now`, and above the last in any case.

        Vehicles refuse a number twice, so it is on the disk before it is used.
        """
        self.exchange = max(self.exchange + 1, now)
        self.save()
        return self.exchange

    def count_release(self, label: str) -> None:
        """Count one more noisy model, before anybody sees it."""
        self.releases[label] = self.releases.get(label, 0) + 1
        self.save()

    def note(self, status: str, reason: str = "") -> None:
        """Write down what the run is doing from now on, and why."""
        if status != self.status or not self.since:
            self.since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")[:19]
        self.status = status
        self.reason = reason
        self.save()

    @property
    def doing(self) -> str:
        """Return what the run is doing, since when and why, as one sentence."""
        status = self.status
        reason = self.reason
        if status in (RUNNING, PAUSED) and not is_held(self.path.parent, RUN_LOCK):
            status = INTERRUPTED
            reason = "its server was stopped; --resume continues it"
        begun = "at" if status == FINISHED else "since"
        return f"{status} {begun} {self.since} (UTC)" + (f": {reason}" if reason else "")

    def save(self) -> None:
        """Write RUN/deployment.json."""
        table = {name: value for name, value in vars(self).items() if name != "path"}
        write_text(self.path, json.dumps(table, ensure_ascii=False) + "\n")

    def keep_total(self, purpose: str, total: SumTotal) -> None:
        """Keep the total of a secure aggregation with this purpose."""
        path = self._total_file(purpose)
        write_bytes(path, pack(Content({"survivors": list(total.survivors)}, total.sums)))
        for old in oldest_first(path.parent.glob("*.safetensors"))[:-KEPT_TOTALS]:
            old.unlink(missing_ok=True)

    def kept_total(self, purpose: str) -> SumTotal | None:
        """Return a total that was kept; None: there is none that can be read."""
        try:
            content = unpack(self._total_file(purpose).read_bytes())
            return SumTotal(content.arrays, tuple(content.values["survivors"]))
        except (OSError, DataError, KeyError, TypeError):
            return None

    def _total_file(self, purpose: str) -> Path:
        return self.path.parent / "sums" / f"{purpose}.safetensors"
