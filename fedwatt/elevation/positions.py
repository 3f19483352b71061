"""Detection of a trip's untrustworthy positions.

Positions are evaluated by the wheels, which are never far wrong: a fix that is missing, out of
range or exactly at 0°, 0° (what a receiver without a fix reports), that leaps farther than the
wheels turned, or that stays in place while they turn, is left out. A vehicle on a ferry moves
without its wheels; in a tunnel or a garage it moves without a fix; `climb` says what becomes of
both.
"""

import numpy as np

from fedwatt.elevation.grid import distance_m
from fedwatt.telemetry.channels import POSITION
from fedwatt.telemetry.trip import BoolArray, FloatArray, Trip

LEAP_FACTOR = 1.5
LEAP_M = 15.0
"""A second's move beyond 1.5 times the wheels' and 15 m more is a leap."""
AROUND_LEAP_S = 3
FROZEN_M = 1.0
FROZEN_DRIVEN_M = 60.0
"""Standing within 1 m while the wheels roll 60 m is a frozen receiver."""


def trusted_positions(trip: Trip) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Latitude, longitude and whether both can be trusted, each [seconds]."""
    speed_mps = trip.channels["speed_mps"]
    if any(name not in trip.channels for name in POSITION):
        nowhere = np.zeros(len(speed_mps))
        return nowhere, nowhere, np.zeros(len(speed_mps), dtype=bool)
    latitude, longitude = (trip.channels[name] for name in POSITION)
    finite = np.isfinite(latitude) & np.isfinite(longitude) & np.isfinite(speed_mps)
    in_range = (np.abs(latitude) <= 90) & (np.abs(longitude) <= 360)
    trusted = finite & in_range & ~((latitude == 0) & (longitude == 0))
    latitude, longitude = np.where(trusted, latitude, 0.0), np.where(trusted, longitude, 0.0)
    moved_m = distance_m(latitude[:-1], longitude[:-1], latitude[1:], longitude[1:])
    faster_mps = np.maximum(speed_mps[:-1], speed_mps[1:])
    both = trusted[:-1] & trusted[1:]
    leaps = np.flatnonzero(both & (moved_m > LEAP_FACTOR * faster_mps + LEAP_M))
    for leap in leaps:
        trusted[max(leap - AROUND_LEAP_S, 0) : leap + 2 + AROUND_LEAP_S] = False
    return latitude, longitude, trusted & ~_frozen(moved_m, speed_mps, both)


def _frozen(moved_m: FloatArray, speed_mps: FloatArray, both: BoolArray) -> BoolArray:
    """Seconds of stretches in which the position stays while the wheels go on, [seconds]."""
    still = both & (moved_m < FROZEN_M)
    frozen = np.zeros(len(speed_mps), dtype=bool)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], still.astype(np.int8), [0]])))
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        # Seconds first..last are in one place. The first of them was still a good fix, unless it
        # is where the trip, or what is remembered of it, begins: nothing says so there.
        if np.nansum(speed_mps[first + 1 : last + 1]) > FROZEN_DRIVEN_M:
            frozen[first + (first > 0) : last + 1] = True
    return frozen
