"""Settings of a deployed fleet beyond a simulation: waits, deadlines and limits."""

from dataclasses import dataclass
from math import inf

from fedwatt.errors import check


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Settings of `fedwatt deploy`; a simulation ignores them."""

    vehicles: int = 0
    """Vehicles to wait for before the first round; 0: those that enrol in time."""
    enrolment_seconds: float = 120.0
    """Longest wait for vehicles before the first round."""
    round_seconds: float = 600.0
    """Deadline for the replies of a round; what comes later is lost."""
    evaluation_seconds: float = 300.0
    """Deadline for the error sums of a model."""
    quorum: int = 1
    """Vehicles that must be there for a round; with fewer the run pauses, and a round that fewer of
    those called have answered is asked again."""
    pause_seconds: float = 604_800.0
    """Longest pause for want of vehicles, a week; then the run ends and can be resumed."""
    over_selection: float = 0.0
    """Share of vehicles called beyond `participation`; a round, and the evaluation of its model,
    closes with the replies that it would have had without them."""
    backoff_after: int = 2
    """Rounds in a row that a vehicle may miss, late or failing, before it is skipped for 2 rounds;
    each further miss doubles that, up to 64. 0: never."""
    minimum_replies: int = 1
    """A round with fewer usable replies makes no model."""
    poll_seconds: float = 0.1
    """Pause between two polls for replies."""
    weight_cap: float = 5.0
    """Most that a vehicle weighs in a mean, in medians of the vehicles' windows; inf: any."""
    norm_bound: float = 5.0
    """Longest reply, in medians of the replies; longer ones are shortened."""
    routes: bool = False
    """Whether vehicles also share, by secure aggregation, how they drive each place and what routes
    take, for `fedwatt route`; needs `secure.enabled` and `elevation.area`. A simulation learns it
    when it is first asked for."""

    def __post_init__(self) -> None:
        check(self, "vehicles", self.vehicles >= 0, "at least 0 (0: those that enrol in time)")
        for name in ("enrolment_seconds", "round_seconds", "evaluation_seconds", "pause_seconds"):
            check(self, name, 0 < getattr(self, name) < inf, "above 0 and finite")
        check(self, "quorum", self.quorum >= 1, "at least 1 vehicle")
        check(self, "over_selection", 0 <= self.over_selection <= 2, "from 0 to 2")
        check(
            self, "backoff_after", self.backoff_after >= 0, "at least 0 (0: no vehicle is skipped)"
        )
        check(self, "minimum_replies", self.minimum_replies >= 1, "at least 1")
        for name in ("weight_cap", "norm_bound"):
            check(self, name, getattr(self, name) >= 1, "at least 1 (inf switches it off)")
        check(self, "poll_seconds", 0 < self.poll_seconds <= 1, "above 0, at most 1")
