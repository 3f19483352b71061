"""Climb and descent of every second of a trip, from its positions and an elevation map.

Positions are checked against the wheels, which are never far wrong: a fix that is missing, out of
range or exactly at 0°, 0° (reported by receivers without a fix), that leaps farther than the
wheels turned, or that stays in place while they turn, is left out. A vehicle on a ferry moves
without its wheels; in a tunnel or a garage it moves without a fix.

In a gap (no fix, or nodes that the map does not have) the difference between its ends is spread
over the metres the wheels rolled, provided both ends are in one region and the grade is one a road
can have; otherwise climb is unknown. Features of such seconds are those of a level road, which
stay at 0 in every vehicle (`windows.scaling.about_zero`), and the feature `climb_known` is 0.
Wheels that stand do not climb, whatever the position does.

A predictor in a vehicle reads climb in the same way, or from other channels of the trip
(`with_climb`). Needs numpy only.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.grid import distance_m
from fedwatt.telemetry.channels import POSITION
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray, Trip, Vehicle
from fedwatt.windows.features import CLIMB, CLIMB_KNOWN

LEAP_FACTOR = 1.5
LEAP_M = 15.0
"""A second's move beyond 1.5 times the wheels' and 15 m more is a leap."""
AROUND_LEAP_S = 3
FROZEN_M = 1.0
FROZEN_DRIVEN_M = 60.0
"""Standing within 1 m while the wheels roll 60 m is a frozen receiver."""


def trusted_positions(trip: Trip) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return latitude, longitude and whether both can be trusted, each [seconds]."""
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
    """Return a mask [seconds] of stretches in which the position stays while the wheels turn."""
    still = both & (moved_m < FROZEN_M)
    frozen = np.zeros(len(speed_mps), dtype=bool)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], still.astype(np.int8), [0]])))
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        # Seconds first..last are in one place. The first of them was still a good fix, unless it
        # is where the trip, or what is remembered of it, begins: nothing says so there.
        if np.nansum(speed_mps[first + 1 : last + 1]) > FROZEN_DRIVEN_M:
            frozen[first + (first > 0) : last + 1] = True
    return frozen


STANDING_MPS = 0.3
STEEPEST = 0.2
SLACK_M = 1.0
SOURCES = {
    "field": POSITION,
    "elevation": ("elevation_m",),
    "auto": (*POSITION, "elevation_m"),
}
"""Where a model's climb comes from, and the channels of telemetry that it is read from."""
LOOK_AHEAD_S = AROUND_LEAP_S + 1  # a leap of the position takes the trust from seconds before it
MEMORY_S = 600  # how far back a gap may have begun and still be closed; a longer one stays unknown


def with_elevation(vehicle: Vehicle, elevation_map: ElevationMap) -> Vehicle:
    """Return the vehicle with channels of climb, `climbing`'s, in all its trips."""
    return replace(
        vehicle, trips=tuple(climbing(t, vehicle_rise_m(t, elevation_map)) for t in vehicle.trips)
    )


def climbing(trip: Trip, rise: FloatArray) -> Trip:
    """Return the trip with `climb_m`, `descent_m` and `climb_known`.

    `rise` [seconds], metres gained each second, is NaN where unknown; there the road is level.
    """
    level = np.nan_to_num(rise)
    up = np.maximum(level, 0.0)
    down = np.maximum(-level, 0.0)
    climb = {"climb_m": up, "descent_m": down, CLIMB_KNOWN: np.isfinite(rise).astype(float)}
    return replace(trip, channels={**trip.channels, **climb})


def with_measured_elevation(vehicle: Vehicle) -> Vehicle:
    """Return the vehicle with channels of climb from its channel `elevation_m` (eVED, a DEM).

    In trips without it climb is not known.
    """
    return replace(vehicle, trips=tuple(climbing(t, measured_rise_m(t)) for t in vehicle.trips))


def measured_rise_m(trip: Trip) -> FloatArray:
    """Return the metres gained in each second of a trip, + uphill, from its channel `elevation_m`.

    NaN where that is not known.
    """
    if "elevation_m" not in trip.channels:
        return np.full(trip.seconds, np.nan)
    one_region = np.zeros(trip.seconds, dtype=np.int64)
    return rise_m(trip.channels["elevation_m"], one_region, trip.channels["speed_mps"])


def trip_rise_m(trip: Trip, elevation_map: ElevationMap) -> FloatArray:
    """Return the metres gained in each second of a trip, + uphill, [seconds]; NaN where it is not
    known.
    """
    latitude_deg, longitude_deg, trusted = trusted_positions(trip)
    elevation_m, region = elevation_map.read(latitude_deg, longitude_deg)
    elevation_m = np.where(trusted, elevation_m, np.nan)
    return rise_m(elevation_m, region, trip.channels["speed_mps"])


def vehicle_rise_m(trip: Trip, elevation_map: ElevationMap) -> FloatArray:
    """Return metres gained per second by a vehicle's map, or by measured elevation if preferred.

    NaN where it is not known.
    """
    learned = trip_rise_m(trip, elevation_map)
    if not elevation_map.measured:
        return learned
    measured = measured_rise_m(trip)
    return np.where(np.isfinite(measured), measured, learned)


def rise_m(elevation_m: FloatArray, region: IntArray, speed_mps: FloatArray) -> FloatArray:
    """Return the metres gained during each second, [seconds], from elevations; both NaN where not
    known.

    Second t's share is what was gained since second t-1.

    >>> level, same = np.zeros(4, dtype=np.int64), np.full(4, 10.0)
    >>> rise_m(np.array([5.0, 5.5, np.nan, 4.5]), level, same)
    array([ 0. ,  0.5, -0.5, -0.5])
    >>> rise_m(np.array([5.0, 5.5, 9.5, 9.0]), level, same)  # 4 m up within 10 m is no road
    array([ 0. ,  0.5,  nan, -0.5])
    """
    rise = np.full(len(elevation_m), np.nan)
    finite = np.flatnonzero(np.isfinite(elevation_m))
    rise[finite[:1]] = 0.0
    if len(finite) < 2:
        return rise
    rolled_m = np.cumsum(np.nan_to_num(speed_mps))
    before = finite[:-1]
    after = finite[1:]
    gained_m = elevation_m[after] - elevation_m[before]
    metres = rolled_m[after] - rolled_m[before]
    road = (region[after] == region[before]) & (np.abs(gained_m) <= STEEPEST * metres + SLACK_M)
    # A gap's gain is spread over its metres; between neighbours that is the gain itself.
    per_metre = np.where(metres > 0, gained_m / np.where(metres > 0, metres, 1.0), 0.0)
    per_metre[~road] = np.nan
    following = np.searchsorted(finite, np.arange(len(rise))) - 1
    inside = (following >= 0) & (np.arange(len(rise)) <= finite[-1])
    rise[inside] = per_metre[following[inside]] * np.nan_to_num(speed_mps[inside])
    # The wheels' metres can be few while a fix drifts; standing is standing.
    still = np.isfinite(rise) & (np.nan_to_num(speed_mps) < STANDING_MPS)
    return np.where(still, 0.0, rise)


def climb_from(trip: Trip, source: str) -> str:
    """Return the source of the trip's climb: its positions, another channel, or none.

    >>> climb_from(Trip("7", {"speed_mps": np.ones(2), "grade": np.zeros(2)}), "field")
    'grade'
    """
    channels = trip.channels
    recorded = {name for name, values in channels.items() if np.isfinite(values).any()}
    if source == "auto" and "elevation_m" in recorded:
        return "elevation_m"
    if source in ("field", "auto") and recorded.issuperset(POSITION):
        return "positions"
    if all(name in channels for name in CLIMB):
        return "climb"
    return next((name for name in ("elevation_m", "grade") if name in channels), "nothing")


def with_climb(trip: Trip, source: str, elevation_map: ElevationMap | None) -> Trip:
    """Return the trip with climb and descent; without any source they are 0 and unknown."""
    origin = climb_from(trip, source)
    if origin == "climb":
        return _as_given(trip)
    if origin == "positions" and elevation_map is not None:
        return climbing(trip, trip_rise_m(trip, elevation_map))
    if origin == "elevation_m" and source == "auto" and elevation_map is not None:
        return climbing(trip, vehicle_rise_m(trip, elevation_map))
    if origin == "elevation_m":
        return climbing(trip, measured_rise_m(trip))
    if origin == "grade":
        return climbing(trip, trip.channels["grade"] * trip.channels["speed_mps"])
    return climbing(trip, np.full(trip.seconds, np.nan))


def unlocated(trip: Trip, needed: Collection[str] = ()) -> Trip:
    """Return the trip without the channels that climb is read from, but for those `needed`."""
    sources = {*POSITION, "elevation_m", "grade", *CLIMB, CLIMB_KNOWN}
    climb = {*CLIMB, CLIMB_KNOWN}
    hidden = sources - (set(needed) - climb)
    left = {name: values for name, values in trip.channels.items() if name not in hidden}
    return replace(trip, channels=left)


def _as_given(trip: Trip) -> Trip:
    """Return the trip with its own climb and descent, known where both are numbers."""
    is_known = trip.channels.get(CLIMB_KNOWN, np.ones(trip.seconds)) > 0
    is_known &= np.all([np.isfinite(trip.channels[name]) for name in CLIMB], axis=0)
    climb = {name: np.where(is_known, trip.channels[name], 0.0) for name in CLIMB}
    return replace(trip, channels={**trip.channels, **climb, CLIMB_KNOWN: is_known.astype(float)})
