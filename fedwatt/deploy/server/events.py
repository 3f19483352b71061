"""Events of a run: RUN/events.jsonl, one line per event, only added to.

    {"at": …, "event": "enrolled", "vehicle": "car-001", "version": "0.1.0"}
    {"at": …, "event": "answered", "vehicle": "car-001", "method": "fedavg", "round": 3,
     "question": "train", "seconds": 0.82}
    {"at": …, "event": "late", …, "reason": "it did not reply within 600 s"}

docs/operating.md lists them all. Method and round are those of `progress.jsonl`; round 0 comes
before the first. Reasons are the server's words; nothing that a vehicle wrote into an error is
repeated. The four short steps of a secure aggregation leave a line only where they fail.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from fedwatt.deploy.server.requests import (
    ANSWERED,
    FAILED,
    LATE,
    REFUSED,
    REJECTED,
    SPARE,
    Reply,
)
from fedwatt.deploy.vehicle.messages import SUM_STEPS
from fedwatt.files import append_rows

FILE: Final = "events.jsonl"

UNCOUNTED: Final = "not counted"
ENROLLED: Final = "enrolled"
TURNED_AWAY: Final = "turned away"

REPLIES: Final = (ANSWERED, REFUSED, FAILED, LATE, REJECTED, SPARE)
"""Outcomes of a request: one of these for each vehicle that was asked."""
TROUBLES: Final = frozenset((REFUSED, FAILED, LATE, REJECTED, UNCOUNTED, TURNED_AWAY))


@dataclass
class EventLog:
    """The events of a run, and the round that they belong to."""

    path: Path
    method: str = ""
    round: int = 0
    troubled: set[str] = field(default_factory=set)
    """Vehicles that have a line about a trouble in this round already."""

    def begin(self, method: str, round: int) -> None:
        """Let the events that follow belong to this round."""
        self.method = method
        self.round = round
        self.troubled.clear()

    def replied(self, kind: str, replies: Mapping[str, Reply]) -> None:
        """Write the outcome of a request, by vehicle."""
        self.write(
            {"event": reply.outcome, "vehicle": name, "method": self.method, "round": self.round}
            | {"question": kind, "seconds": round(reply.seconds, 3)}
            | ({"reason": reply.reason} if reply.reason else {})
            for name, reply in replies.items()
            if not (reply.outcome == ANSWERED and kind in SUM_STEPS)
        )

    def uncounted(self, vehicle: str, reason: str) -> None:
        """Write that a readable reply did not count; once per round and vehicle."""
        if vehicle not in self.troubled:
            line = {"event": UNCOUNTED, "vehicle": vehicle, "method": self.method}
            self.write([{**line, "round": self.round, "reason": reason[:200]}])

    def write(self, lines: Iterable[dict[str, Any]]) -> None:
        """Add lines; those of one request have the time of its end."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        rows = [{"at": at, **line} for line in lines]
        self.troubled |= {row["vehicle"] for row in rows if row["event"] in TROUBLES}
        if rows:
            append_rows(self.path, rows)
