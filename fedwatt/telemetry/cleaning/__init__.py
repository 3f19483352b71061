"""Settings of the cleaning that a vehicle does to its own trips."""

from dataclasses import dataclass

from fedwatt.errors import check


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """Criteria of a usable trip.

    A part under `minimum_seconds` or `minimum_metres` is dropped, as is a vehicle with fewer than
    `minimum_trips` recorded trips that are usable. A trip is cut where nothing was recorded for
    `maximum_gap_s`, or, if the vehicle stood before and after, for `maximum_standing_gap_s` where
    that is longer.
    `unlabelled` keeps trips without pack signals: real driving for virtual electrification.
    `charge_only` keeps trips that have a state of charge and no other pack signal.
    """

    minimum_trips: int = 10
    minimum_seconds: float = 120.0
    minimum_metres: float = 500.0
    maximum_gap_s: float = 10.0
    maximum_standing_gap_s: float = 10.0
    unlabelled: bool = False
    charge_only: bool = False

    def __post_init__(self) -> None:
        check(self, "minimum_trips", self.minimum_trips >= 1, "at least 1")
        check(self, "minimum_seconds", self.minimum_seconds >= 0, "at least 0 s")
        check(self, "minimum_metres", self.minimum_metres >= 0, "at least 0 m")
        check(self, "maximum_gap_s", self.maximum_gap_s >= 1, "at least 1 s")


# VED's receiver reports every 30 s at standstill (see `gaps`).
VED_CLEANING = Cleaning(maximum_standing_gap_s=31.0)
PLAIN_CLEANING = Cleaning(minimum_trips=1)
