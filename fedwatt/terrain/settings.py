"""How the fleet's elevation field is learned."""

from dataclasses import dataclass
from math import isfinite

from fedwatt.errors import check


@dataclass(frozen=True, kw_only=True)
class TerrainSettings:
    """Grid, segments, prior and privacy of a field."""

    source: str = "learn"
    """"learn" from the fleet's training trips, "measured" by the vehicles' own elevation channel,
    or the file of a field made by `fedwatt terrain learn`."""
    cell_m: float = 80.0
    """Metres between nodes."""
    segment_s: int = 8
    """Seconds over which energy is compared with climb."""
    prior_grade: float = 0.03
    """Standard deviation of the grade between neighbouring nodes before anything is known."""
    refreshes: int = 2
    """Further exchanges, each with the residuals of a model that knows the field so far."""
    minimum_vehicles: int = 3
    """k: a node is published only if as many vehicles contributed to it."""
    private: bool = True
    """Whether each vehicle learns, on board, the ground that is not published."""

    def __post_init__(self) -> None:
        check(
            self, "cell_m", isfinite(self.cell_m) and 1 <= self.cell_m <= 100_000, "1 m to 100 km"
        )
        check(self, "segment_s", 1 <= self.segment_s <= 600, "from 1 to 600 s")
        check(self, "prior_grade", 0 < self.prior_grade < 1, "between 0 and 1, such as 0.03")
        check(self, "refreshes", self.refreshes >= 0, "at least 0 (0: one exchange)")
        check(self, "minimum_vehicles", self.minimum_vehicles >= 1, "at least 1 vehicle")
