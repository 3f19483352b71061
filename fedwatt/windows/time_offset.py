"""Estimate the time offset between motion and power of a vehicle, and delay its motion by it.

Speed and position reach a recording by other ways than voltage and current do, and a second's
energy belongs to the distance that ends with it. In VED motion is about a second ahead of power.
Trips are delayed before features are computed.

A vehicle's time offset is estimated from its own training trips. For every candidate a simple power
model, a ridge on physics features, is fitted to energies of a few seconds of the delayed trips; the
estimate is the offset with the smallest residual variance, refined by a parabola through it and its
neighbours. It is 0 unless the variance falls clearly. Elevation plays no part: it is learned on
aligned motion later, and changes too slowly to matter here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import ceil

import numpy as np

from fedwatt.telemetry.channels import POSITION
from fedwatt.telemetry.trip import FloatArray, Trip, Vehicle
from fedwatt.windows.features import CLIMB, physics_features, trip_features
from fedwatt.windows.scaling import ridge

MOTION = ("speed_mps", "grade", "elevation_m", *CLIMB, *POSITION)
"""Channels of the vehicle's motion and position."""
LONGEST_S = 4.0
"""Largest time offset; a stream keeps as many seconds."""
STEP_S = 0.5
SEGMENT_S = 5
CLEAR_GAIN = 0.98
"""A time offset counts only if it lowers the residual variance at least to this share."""
RESOLUTION_S = 0.25


def delayed_by(values: FloatArray, lag_s: float) -> FloatArray:
    """Return values [seconds] delayed by `lag_s`, interpolated; the first value is held.

    >>> delayed_by(np.array([0.0, 2.0, 6.0, 6.0]), 1.5)
    array([0., 0., 1., 4.])
    """
    whole_s = int(lag_s)
    part = lag_s - whole_s
    padded = np.concatenate([np.full(whole_s + 1, values[0]), values])
    now = padded[1 : len(values) + 1]
    before = padded[: len(values)]
    # Not a weighted sum where there is no part: 0 · NaN is NaN.
    return now if part == 0 else np.asarray((1 - part) * now + part * before)


def delayed(trip: Trip, lag_s: float) -> Trip:
    """Return the trip with its motion `lag_s` later, so that it goes with the energy of each
    second.
    """
    if lag_s == 0:
        return trip
    moved = {
        name: delayed_by(trip.channels[name], lag_s) for name in MOTION if name in trip.channels
    }
    return replace(trip, channels={**trip.channels, **moved})


def aligned(vehicle: Vehicle, lag_s: float) -> Vehicle:
    """Return the vehicle with all trips delayed; its `lag_s` is among its facts."""
    trips = tuple(delayed(trip, lag_s) for trip in vehicle.trips)
    return replace(vehicle, trips=trips, facts={**vehicle.facts, "lag_s": lag_s})


def vehicle_lag_s(vehicle: Vehicle, split_of: Mapping[str, str]) -> float:
    """Return the vehicle's time offset in seconds, 0 to `LONGEST_S`; `split_of` has the split of
    each trip.
    """
    if any("energy_wh" not in trip.channels for trip in vehicle.trips):
        return 0.0
    names = physics_features([trip for trip in vehicle.trips if trip.name in split_of])
    training = [trip for trip in vehicle.trips if split_of.get(trip.name) == "train"]
    lags = np.arange(0, LONGEST_S + STEP_S / 2, STEP_S)
    left = np.array(
        [
            _unexplained_variance(training, names, vehicle.name, float(time_offset))
            for time_offset in lags
        ]
    )
    best = int(np.argmin(left))
    if left[best] > CLEAR_GAIN * left[0]:
        return 0.0
    time_offset = float(lags[best])
    if 0 < best < len(lags) - 1:
        before, here, after = left[best - 1 : best + 2]
        time_offset += STEP_S / 2 * float((before - after) / (before - 2 * here + after))
    return round(time_offset / RESOLUTION_S) * RESOLUTION_S


def _unexplained_variance(
    trips: Iterable[Trip], names: tuple[str, ...], vehicle: str, lag_s: float
) -> float:
    """Return the variance of segments' energy that features delayed by `lag_s` leave, Wh²."""
    features = []
    energy_wh = []
    for trip in trips:
        # Every time offset is evaluated on the same seconds, those that have a past.
        rows = trip_features(delayed(trip, lag_s), names, vehicle)[ceil(LONGEST_S) :]
        features.append(_sums(rows))
        energy_wh.append(_sums(trip.channels["energy_wh"][ceil(LONGEST_S) :]))
    x = np.concatenate(features)
    y = np.concatenate(energy_wh)
    beta = ridge(x, y)
    return float(np.var(y - x @ beta[:-1]))


def _sums(values: FloatArray) -> FloatArray:
    """Return sums over segments, [segments, ...] of values [seconds, ...]."""
    full_seconds = len(values) // SEGMENT_S * SEGMENT_S
    cut: FloatArray = values[:full_seconds].reshape(-1, SEGMENT_S, *values.shape[1:]).sum(axis=1)
    return cut
