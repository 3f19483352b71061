"""The terms on which a real fleet trains: whom the server waits for, and how long."""

from dataclasses import dataclass
from math import inf

from fedwatt.errors import check


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What `fedwatt deploy` needs to know beyond a simulation; a simulation ignores it."""

    vehicles: int = 0
    """Vehicles to wait for before the first round; 0: those that enrol in time."""
    enrolment_seconds: float = 120.0
    """Longest wait for vehicles before the first round."""
    round_seconds: float = 600.0
    """Deadline for the replies of a round; what comes later is lost."""
    evaluation_seconds: float = 300.0
    """Deadline for the error sums of a model."""
    minimum_replies: int = 1
    """A round with fewer replies makes no model."""
    poll_seconds: float = 0.1
    """Pause between two looks for replies."""
    diagnostics: bool = False
    """Whether vehicles report their roughness, pull and runtime for the records."""

    def __post_init__(self) -> None:
        check(self, "vehicles", self.vehicles >= 0, "at least 0 (0: those that enrol in time)")
        for name in ("enrolment_seconds", "round_seconds", "evaluation_seconds"):
            check(self, name, 0 < getattr(self, name) < inf, "above 0 and finite")
        check(self, "minimum_replies", self.minimum_replies >= 1, "at least 1")
        check(self, "poll_seconds", 0 < self.poll_seconds <= 1, "above 0, at most 1")
