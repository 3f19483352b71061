"""Status of each vehicle of a run, derived from the lines of events.jsonl.

A vehicle's state is that of the last round in which it was asked: one trouble there outweighs the
requests that it answered, since a vehicle that evaluates models and refuses to train is no help.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fedwatt.deploy.server.events import ENROLLED, REPLIES, TROUBLES, TURNED_AWAY
from fedwatt.deploy.server.requests import ANSWERED, AWAY, LATE, REFUSED

STATES: Final = {
    "revoked": "its certificate was revoked",
    "failing": "it failed in the last round that asked it",
    "refused": "its acceptance file refuses the plan",
    "late": "it missed the deadline in the last round that asked it",
    "turned away": "it may not take part, or not yet",
    "away": "it is outside the hours in which it answers",
    "offline": "it is not connected",
    "on time": "it did all that the last round asked of it",
    "waiting": "it has enrolled and was not asked yet",
    "not seen": "its key is accepted, and it has not enrolled in this run",
}
"""In the order in which an operator wants to see them."""
OF_EVENT: Final = {REFUSED: "refused", LATE: "late", TURNED_AWAY: "turned away"}
"""States after a trouble; "failing" after any other."""
Line = Mapping[str, Any]
Round = tuple[str, int]
"""Method and round."""


@dataclass
class Standing:
    """The status of one vehicle, from the events of a run."""

    vehicle: str
    version: str = ""
    requests: int = 0
    answered: int = 0
    success: Line | None = None
    """The last reply to train, or any of a vehicle that was never asked to."""
    trains: bool = False
    """Whether it was ever asked to train; held-out vehicles are not."""
    trouble: Line | None = None
    away: Line | None = None
    """The last line that it is outside its hours, if nothing came since."""
    failing: int = 0
    """Rounds in a row, of those that asked it, with a trouble."""
    last: Round | None = None
    """The round that asked it last."""
    troubled: bool = False
    """Whether there was a trouble in that round."""

    def take(self, line: Line) -> None:
        """Update the status by one event."""
        event = line["event"]
        self.away = line if event == AWAY else None
        if event == ENROLLED:
            self.version = line["version"]
            if self.trouble is not None and self.trouble["event"] == TURNED_AWAY:
                self.troubled = False
                self.failing = 0
        elif event != AWAY:
            self._take_reply(event, line)

    def _take_reply(self, event: str, line: Line) -> None:
        # A vehicle that is turned away is in no round, and waits longer each time.
        now = (line["method"], line["round"]) if "round" in line else ("", -1 - self.failing)
        if now != self.last:
            self.failing = self.failing if self.troubled else 0
            self.troubled = False
            self.last = now
        training = line.get("question") == "train"
        if training and not self.trains:
            self.trains = True
            self.success = None
        if event in REPLIES:
            self.requests += 1
        if event == ANSWERED:
            self.answered += 1
            if training or not self.trains:
                self.success = line
        elif event in TROUBLES:
            self.failing += not self.troubled
            self.troubled = True
            self.trouble = line

    def state(self) -> tuple[str, str]:
        """Return one of `STATES`, as far as the events show, and the reason for it."""
        if self.away is not None:
            return "away", str(self.away["reason"])
        if self.troubled and self.trouble is not None:
            return OF_EVENT.get(self.trouble["event"], "failing"), str(self.trouble["reason"])
        return ("waiting" if not self.answered else "on time"), ""
