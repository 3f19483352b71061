"""The part of the earth a vehicle's trips lie in: a box of latitudes and longitudes."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import cos, radians

import numpy as np

from fedwatt.telemetry.channels import POSITION
from fedwatt.telemetry.cleaning.glitches import METRES_PER_DEGREE
from fedwatt.telemetry.trip import FloatArray, Trip


@dataclass(frozen=True)
class Box:
    """Sides in degrees, WGS 84; a box does not cross the 180th meridian."""

    south: float
    west: float
    north: float
    east: float

    def covers(self, other: "Box") -> bool:
        """Return whether no part of `other` lies outside."""
        within_latitudes = self.south <= other.south and other.north <= self.north
        return within_latitudes and self.west <= other.west and other.east <= self.east

    def meets(self, other: "Box") -> bool:
        """Return whether the two have a place in common."""
        same_latitudes = self.south <= other.north and other.south <= self.north
        return same_latitudes and self.west <= other.east and other.west <= self.east

    def joined(self, other: "Box") -> "Box":
        """Return the smallest box that covers both."""
        south = min(self.south, other.south)
        west = min(self.west, other.west)
        return Box(south, west, max(self.north, other.north), max(self.east, other.east))

    def widened(self, metres: float) -> "Box":
        """Return the box with a margin of `metres` all around.

        >>> Box(60, 10, 60, 10).widened(111_195).east.__round__(2)
        12.06
        """
        up = metres / METRES_PER_DEGREE
        # Degrees of longitude are shortest at the side nearer to a pole.
        pole = min(max(abs(self.south), abs(self.north)) + up, 89.0)
        aside = up / cos(radians(pole))
        return Box(self.south - up, self.west - aside, self.north + up, self.east + aside)

    def __str__(self) -> str:
        latitudes = f"latitude {self.south:.1f} to {self.north:.1f}"
        return f"{latitudes} and longitude {self.west:.1f} to {self.east:.1f}"


def has_positions(trip: Trip) -> bool:
    """Return whether the trip has a latitude and a longitude at least once."""
    recorded = all(name in trip.channels for name in POSITION)
    return recorded and bool(np.isfinite(places(trip)).all(axis=1).any())


def places(trip: Trip) -> FloatArray:
    """Latitude and longitude of a trip, degrees. [seconds, 2]."""
    return np.stack([trip.channels[name] for name in POSITION], axis=1)


def region(trips: Iterable[Trip]) -> Box | None:
    """Return the box around all positions; None if there are none."""
    located = [places(trip) for trip in trips if has_positions(trip)]
    if not located:
        return None
    south, west = np.min([np.nanmin(place_deg, axis=0) for place_deg in located], axis=0).tolist()
    north, east = np.max([np.nanmax(place_deg, axis=0) for place_deg in located], axis=0).tolist()
    return Box(south, west, north, east)
