"""Events of a run: RUN/events.jsonl, one line per event, only added to.

    {"at": …, "event": "enrolled", "vehicle": "car-001", "version": "0.1.0"}
    {"at": …, "event": "answered", "vehicle": "car-001", "method": "fedavg", "round": 3,
     "question": "train", "seconds": 0.82}
    {"at": …, "event": "late", …, "reason": "it did not reply within 600 s"}

`EVENTS` names them all. Method and round are those of `progress.jsonl`; round 0 comes before the
first. Reasons are the server's words; nothing that a vehicle wrote into an error is repeated. The
four short steps of a secure aggregation leave a line only where they fail.

A reply beyond the limits is a fault (RUN/faults.json). After three faults a vehicle is excluded
from the rest of the run.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from fedwatt.deploy.server.back_off import BackOff
from fedwatt.deploy.server.requests import Outcome, Reply
from fedwatt.deploy.vehicle.messages import SUM_STEPS
from fedwatt.errors import RunError, counted
from fedwatt.files import append_rows, write_text

log = logging.getLogger("fedwatt.deploy")

FILE: Final = "events.jsonl"
FAULTS: Final = "faults.json"
MOST_FAULTS: Final = 3

ANSWERED: Final = "answered"
REFUSED: Final = "refused"
FAILED: Final = "failed"
LATE: Final = "late"
REJECTED: Final = "rejected"
SPARE: Final = "spare"
UNCOUNTED: Final = "not counted"
AWAY: Final = "away"
BACK_OFF: Final = "backing off"
ENROLLED: Final = "enrolled"
TURNED_AWAY: Final = "turned away"

REPLIES: Final = {
    ANSWERED: "its reply came and could be read",
    REFUSED: "its acceptance file refuses the plan",
    FAILED: "it could not reply, or was cut off while it did",
    LATE: "no reply came before the deadline",
    REJECTED: "its reply could not be read",
    SPARE: "enough others had replied",
}
"""What becomes of a request: one of these for each vehicle that was asked."""
EVENTS: Final = REPLIES | {
    UNCOUNTED: "its reply could be read and did not count, or not in full",
    AWAY: "it is outside its hours; nothing follows from it",
    BACK_OFF: "it has missed too many rounds in a row, and is skipped until a later one",
    ENROLLED: "it takes part, with this version of fedwatt",
    TURNED_AWAY: "it may not take part, or not yet",
}
TROUBLES: Final = frozenset((REFUSED, FAILED, LATE, REJECTED, UNCOUNTED, TURNED_AWAY))
MISSES: Final = frozenset((FAILED, LATE))
"""Events that count towards a back-off."""


@dataclass
class EventLog:
    """The events of a run, and the round that they belong to."""

    path: Path
    method: str = ""
    round: int = 0
    troubled: set[str] = field(default_factory=set)
    """Vehicles that have a line about a trouble in this round already."""
    held: list[dict[str, Any]] = field(default_factory=list)

    def begin(self, method: str, round: int) -> None:
        """Let the events that follow belong to this round."""
        self.method = method
        self.round = round
        self.troubled.clear()

    def asked(
        self,
        kind: str,
        nodes: Mapping[str, int],
        replies: Mapping[int, Reply],
        outcome: Outcome,
        *,
        seconds: float,
        closed: bool,
    ) -> dict[str, tuple[str, str]]:
        """Write what became of a request, by vehicle; `closed`: it ended early, with enough."""
        became = {
            n: classify(k, replies, outcome, seconds, closed=closed) for n, k in nodes.items()
        }
        self._write(
            {"event": event, "vehicle": name, "method": self.method, "round": self.round}
            | {"question": kind, "seconds": round(outcome.seconds.get(node, seconds), 3)}
            | ({"reason": reason} if reason else {})
            for (name, node), (event, reason) in zip(nodes.items(), became.values(), strict=True)
            if not (event == ANSWERED and kind in SUM_STEPS)
        )
        return became

    def uncounted(self, vehicle: str, reason: str) -> None:
        """Write that a readable reply did not count; once per round and vehicle."""
        if vehicle not in self.troubled:
            about = {"vehicle": vehicle, "method": self.method, "round": self.round}
            self._write([{"event": UNCOUNTED, **about, "reason": reason[:200]}])

    def backing_off(
        self, kind: str, back_offs: Mapping[str, BackOff], reasons: Mapping[str, str]
    ) -> None:
        """Write who is skipped until a later round, and why."""
        about = {"event": BACK_OFF, "method": self.method, "round": self.round, "question": kind}
        training = kind == "train"  # of the round before which it is asked, counted from 0
        self._write(
            {**about, "vehicle": name, "until": back_off.resume_round + training}
            | {"reason": f"{reasons[name]}, {counted(back_off.misses, 'time')} in a row"}
            for name, back_off in back_offs.items()
        )

    def came(self, event: str, vehicle: str, **about: str) -> None:
        """Hold a line about a vehicle that enrolled or was turned away."""
        self.held.append({"event": event, "vehicle": vehicle, **about})

    def flush(self) -> None:
        """Write the lines that are held."""
        if self.held:
            self._write(self.held)
            self.held = []

    def _write(self, lines: Iterable[dict[str, Any]]) -> None:
        now = datetime.now(UTC)
        rows = list(lines)
        self.troubled |= {row["vehicle"] for row in rows if row["event"] in TROUBLES}
        # The request that took longest has just ended.
        longest = max((row.get("seconds", 0.0) for row in rows), default=0.0)
        ages = (timedelta(seconds=longest - row.get("seconds", longest)) for row in rows)
        times = [(now - age).isoformat(timespec="milliseconds") for age in ages]
        append_rows(self.path, ({"at": at, **row} for at, row in zip(times, rows, strict=True)))


def classify(
    node: int, replies: Mapping[int, Reply], outcome: Outcome, seconds: float, *, closed: bool
) -> tuple[str, str]:
    """Return the event and the reason for a request to a node.

    >>> classify(1, {}, Outcome(), 5.0, closed=False)
    ('late', 'it did not reply within 5 s')
    """
    reply = replies.get(node)
    if reply is None:
        if node in outcome.failed:
            return AWAY if node in outcome.away else FAILED, outcome.failed[node]
        return (SPARE, "") if closed else (LATE, f"it did not reply within {seconds:g} s")
    if reply.refused:
        return REFUSED, reply.trouble
    return (ANSWERED, "") if reply.content is not None else (REJECTED, reply.trouble[:200])


@dataclass
class Faults:
    """Replies beyond the limits, by vehicle."""

    path: Path
    faults: dict[str, list[str]] = field(default_factory=dict)
    events: EventLog | None = None

    @classmethod
    def read(cls, path: Path, events: EventLog | None = None) -> "Faults":
        """Return the faults as last written; none where there is no file."""
        if not path.exists():
            return cls(path, events=events)
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            return cls(path, {str(n): [str(f) for f in own] for n, own in table.items()}, events)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise RunError(f"{path} is damaged: {error}. Delete it.") from error

    def excluded(self, name: str) -> bool:
        """Tell whether a vehicle is asked no more."""
        return len(self.faults.get(name, ())) >= MOST_FAULTS

    def add(self, name: str, fault: str) -> None:
        """Count a reply beyond the limits."""
        if self.excluded(name):
            return
        own = self.faults.setdefault(name, [])
        own.append(fault[:200])
        if self.events is not None:
            self.events.uncounted(name, fault)
        left = MOST_FAULTS - len(own)
        then = f"{left} more and it is excluded" if left else "it is excluded from this run"
        log.warning("fault %d of %s: %s; %s", len(own), name, fault, then)
        write_text(self.path, json.dumps(self.faults, indent=2, ensure_ascii=False) + "\n")

    def lines(self) -> Iterator[str]:
        """Return what `fedwatt deploy status` shows."""
        for name, faults in sorted(self.faults.items()):
            state = ", excluded" if self.excluded(name) else ""
            yield f"{name}: {counted(len(faults), 'fault')}{state}; the last: {faults[-1]}"
