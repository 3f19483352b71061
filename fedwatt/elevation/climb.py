"""Climb and descent of every second of a trip, from positions and a field.

The policy where something is missing: in a gap (no fix, a tunnel, ground the field does not know)
the difference between its ends is spread over the metres the wheels rolled, provided both ends are
in one region and the grade is one a road can have; otherwise climb is not known. Such seconds are
level in the features, which keep level at 0 in every vehicle (`windows.scaling.about_zero`), and
the feature `climb_known` is 0. Wheels that stand do not climb,
whatever the position does: a parked vehicle's fix wanders, and a ferry carries the vehicle.

On board climb is read in the same way, or else from what the trip says (`with_climb`). Needs numpy
only.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from fedwatt.elevation.elevation_map import Field
from fedwatt.elevation.positions import AROUND_LEAP_S, trusted_positions
from fedwatt.telemetry.channels import POSITION
from fedwatt.telemetry.trip import FloatArray, IntArray, Trip, Vehicle
from fedwatt.windows.features import CLIMB, CLIMB_KNOWN

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


def with_elevation(vehicle: Vehicle, field: Field) -> Vehicle:
    """Return the vehicle with channels of climb, `climbing`'s, in all its trips."""
    return replace(vehicle, trips=tuple(climbing(t, own_rise_m(t, field)) for t in vehicle.trips))


def climbing(trip: Trip, rise: FloatArray) -> Trip:
    """Return the trip with `climb_m`, `descent_m` and `climb_known`, from metres gained each
    second.

    `rise` [seconds] is NaN where it is not known; there the road is level.
    """
    known = np.isfinite(rise)
    level = np.nan_to_num(rise)
    up = np.maximum(level, 0.0)
    down = np.maximum(-level, 0.0)
    climb = {"climb_m": up, "descent_m": down, CLIMB_KNOWN: known.astype(float)}
    return replace(trip, channels={**trip.channels, **climb})


def with_measured_elevation(vehicle: Vehicle) -> Vehicle:
    """Return the vehicle with channels of climb from its channel `elevation_m` (eVED, a DEM).

    In trips without it climb is not known.
    """
    return replace(vehicle, trips=tuple(climbing(t, measured_rise_m(t)) for t in vehicle.trips))


def measured_rise_m(trip: Trip) -> FloatArray:
    """Metres gained in each second of a trip, + uphill, from its channel `elevation_m`.

    NaN where that is not known.
    """
    if "elevation_m" not in trip.channels:
        return np.full(trip.seconds, np.nan)
    one_region = np.zeros(trip.seconds, dtype=np.int64)
    return rise_m(trip.channels["elevation_m"], one_region, trip.channels["speed_mps"])


def trip_rise_m(trip: Trip, field: Field) -> FloatArray:
    """Metres gained in each second of a trip, + uphill, [seconds]; NaN where it is not known."""
    latitude_deg, longitude_deg, trusted = trusted_positions(trip)
    elevation_m, region = field.read(latitude_deg, longitude_deg)
    elevation_m = np.where(trusted, elevation_m, np.nan)
    return rise_m(elevation_m, region, trip.channels["speed_mps"])


def own_rise_m(trip: Trip, field: Field) -> FloatArray:
    """Metres gained in each second by a vehicle's own field, which may put what it measures first.

    NaN where it is not known.
    """
    learned = trip_rise_m(trip, field)
    if not field.measured:
        return learned
    measured = measured_rise_m(trip)
    return np.where(np.isfinite(measured), measured, learned)


def rise_m(elevation_m: FloatArray, region: IntArray, speed_mps: FloatArray) -> FloatArray:
    """Metres gained during each second, [seconds], from elevations; both NaN where not known.

    Second t's share is what was gained since second t-1.

    >>> level, same = np.zeros(4, dtype=np.int64), np.full(4, 10.0)
    >>> rise_m(np.array([5.0, 5.5, np.nan, 4.5]), level, same)
    array([ 0. ,  0.5, -0.5, -0.5])
    >>> rise_m(np.array([5.0, 5.5, 9.5, 9.0]), level, same)  # 4 m up within 10 m is no road
    array([ 0. ,  0.5,  nan, -0.5])
    """
    rise = np.full(len(elevation_m), np.nan)
    known = np.flatnonzero(np.isfinite(elevation_m))
    rise[known[:1]] = 0.0
    if len(known) < 2:
        return rise
    rolled_m = np.cumsum(np.nan_to_num(speed_mps))
    before = known[:-1]
    after = known[1:]
    gained_m = elevation_m[after] - elevation_m[before]
    metres = rolled_m[after] - rolled_m[before]
    road = (region[after] == region[before]) & (np.abs(gained_m) <= STEEPEST * metres + SLACK_M)
    # A gap's gain is spread over its metres; between neighbours that is the gain itself.
    per_metre = np.where(metres > 0, gained_m / np.where(metres > 0, metres, 1.0), 0.0)
    per_metre[~road] = np.nan
    following = np.searchsorted(known, np.arange(len(rise))) - 1
    inside = (following >= 0) & (np.arange(len(rise)) <= known[-1])
    rise[inside] = per_metre[following[inside]] * np.nan_to_num(speed_mps[inside])
    # The wheels' metres can be few while a fix drifts; standing is standing.
    still = np.isfinite(rise) & (np.nan_to_num(speed_mps) < STANDING_MPS)
    return np.where(still, 0.0, rise)


def climb_from(trip: Trip, source: str) -> str:
    """Return the source of the trip's climb: its positions, another channel, or none.

    >>> climb_from(Trip("7", {"speed_mps": np.ones(2), "grade": np.zeros(2)}), "field")
    'grade'
    """
    known = trip.channels
    there = {name for name in known if np.isfinite(known[name]).any()}
    if source == "auto" and "elevation_m" in there:
        return "elevation_m"
    if source in ("field", "auto") and there.issuperset(POSITION):
        return "positions"
    if all(name in known for name in CLIMB):
        return "climb"
    return next((name for name in ("elevation_m", "grade") if name in known), "nothing")


def with_climb(trip: Trip, source: str, field: Field | None) -> Trip:
    """Return the trip with climb and descent; a level road, and not known, where nothing tells
    them.
    """
    origin = climb_from(trip, source)
    if origin == "climb":
        return _as_given(trip)
    if origin == "positions" and field is not None:
        return climbing(trip, trip_rise_m(trip, field))
    if origin == "elevation_m" and source == "auto" and field is not None:
        return climbing(trip, own_rise_m(trip, field))
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
    given = {name: trip.channels[name] for name in CLIMB}
    known = np.all([np.isfinite(values) for values in given.values()], axis=0)
    known &= trip.channels.get(CLIMB_KNOWN, np.ones(trip.seconds)) > 0
    given = {name: np.where(known, values, 0.0) for name, values in given.items()}
    return replace(trip, channels={**trip.channels, **given, CLIMB_KNOWN: known.astype(float)})
