"""Motion that is recorded ahead of the power it takes, delayed by a vehicle's own lag.

Speed and position reach a recording by other ways than voltage and current do, and a second's
energy belongs to the way that ends with it. In VED motion is about a second ahead of power.
`fedwatt.data.alignment` finds out by how much; whoever makes features of a trip delays it first.
"""

from dataclasses import replace

import numpy as np

from fedwatt.data.channels import POSITION
from fedwatt.data.features import CLIMB
from fedwatt.data.trip import FloatArray, Trip, Vehicle

MOTION = ("speed_mps", "grade", "elevation_m", *CLIMB, *POSITION)
"""Channels that say how the vehicle moves, and where."""
LONGEST_S = 4.0
"""No lag is longer; a stream remembers as much."""


def delayed_by(values: FloatArray, lag_s: float) -> FloatArray:
    """Values [seconds] as they were `lag_s` earlier, on straight lines; the first one is held.

    >>> delayed_by(np.array([0.0, 2.0, 6.0, 6.0]), 1.5)
    array([0., 0., 1., 4.])
    """
    whole = int(lag_s)
    part = lag_s - whole
    padded = np.concatenate([np.full(whole + 1, values[0]), values])
    now, before = padded[1 : len(values) + 1], padded[: len(values)]
    # Not a weighted sum where there is no part: 0 · NaN is NaN.
    return now if part == 0 else np.asarray((1 - part) * now + part * before)


def delayed(trip: Trip, lag_s: float) -> Trip:
    """The trip with its motion `lag_s` later, so that it goes with the energy of each second."""
    if lag_s == 0:
        return trip
    moved = {
        name: delayed_by(trip.channels[name], lag_s) for name in MOTION if name in trip.channels
    }
    return replace(trip, channels={**trip.channels, **moved})


def aligned(vehicle: Vehicle, lag_s: float) -> Vehicle:
    """The vehicle with all trips delayed; its `lag_s` is among its facts."""
    trips = tuple(delayed(trip, lag_s) for trip in vehicle.trips)
    return replace(vehicle, trips=trips, facts={**vehicle.facts, "lag_s": lag_s})
