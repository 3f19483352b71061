"""Settings of learning the fleet's elevation map."""

from dataclasses import dataclass

from fedwatt.elevation.elevation_map import Prior
from fedwatt.elevation.grid import Area, Grid
from fedwatt.errors import check
from fedwatt.settings import Checked, number

MOST_AREA_NODES = 1_000_000
"""80 km by 80 km with the usual grid; every vehicle says something about every node of it."""


LONGER_S = (12, 20)
"""Lengths of segments that are tried, each only if the one before was better."""


@dataclass(frozen=True, kw_only=True)
class ElevationSettings(Checked):
    """Grid, segments, prior and privacy of an elevation map."""

    source: str = "auto"
    """"auto": a vehicle's own elevation channel where it has one, else the map that the fleet
    learns; "learn": the map alone; "measured": the elevation channel alone; or the file of a map
    made by `fedwatt elevation learn`."""
    cell_m: float = number(80.0, "[1, 100000]", "m")
    """Metres between nodes."""
    segment_s: int = number(Prior.segment_s, "[1, 600]", "s")
    """Seconds over which energy is compared with climb."""
    prior_grade: float = number(Prior.grade, "(0, 1)", ", such as 0.03")
    """Standard deviation of the grade between neighbouring nodes before anything is known."""
    choose_prior: bool = True
    """Whether steeper and flatter priors and longer segments are tried, and take the place of
    `prior_grade` and `segment_s` where they predict validation trips clearly better."""
    refreshes: int = number(2, "[0, inf]", "(0: one exchange)")
    """Further exchanges, each with the residuals of a model that has the map so far."""
    minimum_vehicles: int = number(3, "[1, inf]", "vehicle")
    """k: a node is published only if as many vehicles contributed to it."""
    private: bool = True
    """Whether each vehicle learns, for itself, the nodes that are not published."""
    area: tuple[float, ...] = ()
    """South, north, west and east in degrees of where the fleet drives; needed with secure
    aggregation, because the length of an upload must not show where its vehicle was."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.area:
            allowed = "south, north, west and east of where the fleet drives, in degrees"
            check(self, "area", len(self.area) == 4, allowed)
            nodes = self.service_area.size(self.grid)
            allowed = (
                f"of at most {MOST_AREA_NODES:,} nodes, and this one has {nodes:,} with cell_m = "
                f"{self.cell_m:g}. Choose a smaller area or a larger cell_m"
            )
            check(self, "area", nodes <= MOST_AREA_NODES, allowed)

    @property
    def grid(self) -> Grid:
        """The grid of the map."""
        return Grid(cell_m=self.cell_m)

    @property
    def service_area(self) -> Area:
        """The service area of the fleet."""
        south, north, west, east = self.area
        return Area(south_deg=south, north_deg=north, west_deg=west, east_deg=east)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Candidate segment lengths in seconds: `segment_s`, then longer ones."""
        longer = tuple(length for length in LONGER_S if length > self.segment_s)
        return (self.segment_s, *(longer if self.choose_prior else ()))

    @property
    def measures(self) -> bool:
        """Return whether a vehicle's own elevation counts where the fleet learns its map."""
        return self.source == "auto"

    @property
    def learns(self) -> bool:
        """Return whether the fleet learns its map in the run."""
        return self.source in ("auto", "learn")

    @property
    def prior(self) -> Prior:
        """The prior that others must clearly beat."""
        return Prior(self.segment_s, self.prior_grade)
