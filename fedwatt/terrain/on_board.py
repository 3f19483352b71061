"""Climb of a trip in the vehicle, from whatever the trip says: positions, elevation or grade.

Climb is read by `climb`, as in training, so its policy for missing and wrong positions holds in the
vehicle, too. Needs numpy only.
"""

from dataclasses import replace

import numpy as np

from fedwatt.data.channels import POSITION
from fedwatt.data.features import CLIMB
from fedwatt.data.trip import Trip
from fedwatt.terrain.climb import climbing, measured_rise_m, trip_rise_m
from fedwatt.terrain.field import Field
from fedwatt.terrain.positions import AROUND_LEAP_S

SOURCES = {"field": POSITION, "elevation": ("elevation_m",)}
"""Where a model's climb comes from, and the channels of telemetry that it is read from."""
LOOK_AHEAD_S = AROUND_LEAP_S + 1
"""A leap of the position takes the trust from seconds before it."""
MEMORY_S = 600
"""How far back a gap may have begun and still be closed; a longer one stays unknown."""


def climb_from(trip: Trip, source: str) -> str:
    """What the trip's climb is read from: its positions, or whatever else it says, or nothing.

    >>> climb_from(Trip("7", {"speed_mps": np.ones(2), "grade": np.zeros(2)}), "field")
    'grade'
    """
    known = trip.channels
    if source == "field" and all(
        name in known and np.isfinite(known[name]).any() for name in POSITION
    ):
        return "positions"
    if all(name in known for name in CLIMB):
        return "climb"
    return next((name for name in ("elevation_m", "grade") if name in known), "nothing")


def with_climb(trip: Trip, source: str, field: Field | None) -> Trip:
    """The trip with climb and descent; a level road, and not known, where nothing tells them."""
    origin = climb_from(trip, source)
    if origin == "climb":
        return _as_given(trip)
    if origin == "positions" and field is not None:
        return climbing(trip, trip_rise_m(trip, field))
    if origin == "elevation_m":
        return climbing(trip, measured_rise_m(trip))
    if origin == "grade":
        return climbing(trip, trip.channels["grade"] * trip.channels["speed_mps"])
    return climbing(trip, np.full(trip.seconds, np.nan))


def _as_given(trip: Trip) -> Trip:
    """The trip with its own climb and descent, known where both are numbers."""
    given = {name: trip.channels[name] for name in CLIMB}
    known = np.all([np.isfinite(values) for values in given.values()], axis=0)
    known &= trip.channels.get("climb_known", np.ones(trip.seconds)) > 0
    given = {name: np.where(known, values, 0.0) for name, values in given.items()}
    return replace(trip, channels={**trip.channels, **given, "climb_known": known.astype(float)})
