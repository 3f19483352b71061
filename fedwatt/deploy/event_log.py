"""What became of every question to every vehicle: RUN/events.jsonl, a line an event, only added to.

    {"at": …, "event": "enrolled", "vehicle": "car-001", "version": "0.1.0"}
    {"at": …, "event": "turned away", "vehicle": "car-009", "reason": …}
    {"at": …, "event": "answered", "vehicle": "car-001", "method": "fedavg", "round": 3,
     "question": "train", "seconds": 0.82}
    {"at": …, "event": "late", …, "reason": "it did not answer within 600 s"}

`EVENTS` names them all. Method and round are those of `progress.jsonl`, so a line of either leads
to the other; round 0 is what comes before the first. Names are those that vehicles enrolled under,
and reasons are the words of the server, the rule that a vehicle named, or the fault of a reply;
what a vehicle wrote into an error is not repeated.

The lines of a question are written together when it is over, so that a thousand replies are one
write. The four small steps of a secure sum leave a line only where they fail.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from fedwatt.deploy.exchange import Answer, Heard
from fedwatt.deploy.rest import Rest
from fedwatt.errors import counted
from fedwatt.files import append_rows

FILE: Final = "events.jsonl"

ANSWERED: Final = "answered"
REFUSED: Final = "refused"
FAILED: Final = "failed"
LATE: Final = "late"
REJECTED: Final = "rejected"
SPARE: Final = "spare"
UNCOUNTED: Final = "not counted"
AWAY: Final = "away"
RESTS: Final = "resting"
ENROLLED: Final = "enrolled"
TURNED_AWAY: Final = "turned away"

REPLIES: Final = {
    ANSWERED: "its answer came and could be read",
    REFUSED: "its policy forbids an answer, and it named the rule",
    FAILED: "it said that it could not answer, or was cut off while it did",
    LATE: "no answer came before the deadline",
    REJECTED: "its answer could not be read",
    SPARE: "enough others had answered, so nobody waited for it",
}
"""What becomes of a question: one of these for each vehicle that was asked."""
EVENTS: Final = REPLIES | {
    UNCOUNTED: "its answer could be read and did not count, or not in full",
    AWAY: "it is outside the hours in which it answers; nothing follows from it",
    RESTS: "it has missed too many rounds in a row, and is left out until a later one",
    ENROLLED: "it may take part, with this version of fedwatt on board",
    TURNED_AWAY: "it may not take part, or not yet",
}
TROUBLES: Final = frozenset((REFUSED, FAILED, LATE, REJECTED, UNCOUNTED, TURNED_AWAY))
MISSES: Final = frozenset((FAILED, LATE))
"""After some of which, in a row, a vehicle rests (`rest`)."""
STEPS: Final = frozenset(("secure-keys", "secure-shares", "secure-agree", "secure-reveal"))
"""Questions of a secure sum besides the one for the numbers."""


@dataclass
class EventLog:
    """The file of a run, and which round of which method is going on."""

    path: Path
    method: str = ""
    round: int = 0
    troubled: set[str] = field(default_factory=set)
    """Vehicles that have a line about a trouble in this round already."""
    held: list[dict[str, Any]] = field(default_factory=list)
    """Lines to write."""

    def begin(self, method: str, round: int) -> None:
        """What comes from now on belongs to this round."""
        self.method, self.round = method, round
        self.troubled.clear()

    def asked(
        self,
        question: str,
        nodes: Mapping[str, int],
        answers: Mapping[int, Answer],
        heard: Heard,
        *,
        seconds: float,
        closed: bool,
    ) -> dict[str, tuple[str, str]]:
        """Write what became of a question, by vehicle; `closed`: it ended early, with enough."""
        became = {n: outcome(k, answers, heard, seconds, closed=closed) for n, k in nodes.items()}
        self._write(
            {"event": event, "vehicle": name, "method": self.method, "round": self.round}
            | {"question": question, "seconds": round(heard.seconds.get(node, seconds), 3)}
            | ({"reason": reason} if reason else {})
            for (name, node), (event, reason) in zip(nodes.items(), became.values(), strict=True)
            if not (event == ANSWERED and question in STEPS)
        )
        return became

    def uncounted(self, vehicle: str, reason: str) -> None:
        """An answer that was read did not count; once a round for each vehicle."""
        if vehicle not in self.troubled:
            about = {"vehicle": vehicle, "method": self.method, "round": self.round}
            self._write([{"event": UNCOUNTED, **about, "reason": reason[:200]}])

    def rests(self, question: str, rests: Mapping[str, Rest], reasons: Mapping[str, str]) -> None:
        """Write who is not asked a question again before a round, and why."""
        about = {"event": RESTS, "method": self.method, "round": self.round, "question": question}
        training = question == "train"  # of the round before which it is asked, counted from 0
        self._write(
            {**about, "vehicle": name, "until": own.until + training}
            | {"reason": f"{reasons[name]}, {counted(own.missed, 'time')} in a row"}
            for name, own in rests.items()
        )

    def came(self, event: str, vehicle: str, **about: str) -> None:
        """Hold a line about a vehicle that came to take part, and may or may not."""
        self.held.append({"event": event, "vehicle": vehicle, **about})

    def flush(self) -> None:
        """Write down who may take part and who may not, of all who came at once."""
        if self.held:
            self._write(self.held)
            self.held = []

    def _write(self, lines: Iterable[dict[str, Any]]) -> None:
        now, rows = datetime.now(UTC), list(lines)
        self.troubled |= {row["vehicle"] for row in rows if row["event"] in TROUBLES}
        # The question that took longest has just ended.
        longest = max((row.get("seconds", 0.0) for row in rows), default=0.0)
        ages = (timedelta(seconds=longest - row.get("seconds", longest)) for row in rows)
        times = [(now - age).isoformat(timespec="milliseconds") for age in ages]
        append_rows(self.path, ({"at": at, **row} for at, row in zip(times, rows, strict=True)))


def outcome(
    node: int, answers: Mapping[int, Answer], heard: Heard, seconds: float, *, closed: bool
) -> tuple[str, str]:
    """What became of a question to a node, and why; no reason is needed where it was answered.
    >>> outcome(1, {}, Heard(), 5.0, closed=False)
    ('late', 'it did not answer within 5 s')
    >>> outcome(1, {}, Heard(failed={1: "its reply was lost on the way"}), 5.0, closed=True)
    ('failed', 'its reply was lost on the way')
    """
    answer = answers.get(node)
    if answer is None:
        if node in heard.failed:
            return AWAY if node in heard.away else FAILED, heard.failed[node]
        return (SPARE, "") if closed else (LATE, f"it did not answer within {seconds:g} s")
    if answer.refused:
        return REFUSED, answer.trouble
    return (ANSWERED, "") if answer.content is not None else (REJECTED, answer.trouble[:200])
