"""Memory of earlier trips: what a cold vehicle took beyond its predictions, carried to the next.

A heater that no channel reports, a low tyre or a roof box last longer than one trip. The mean
residual of a trip's windows has, in label scales and beside an independent part, the covariance

    k(t, t') = s² (b + c)(b + c') e^(-|Δ| / τ)

between trips that began Δ apart, with the trips' coldness c (`filter.coldness`). Before a trip
begins, its offset is the posterior mean given the vehicle's earlier trips (Gaussian-process
regression: Rasmussen and Williams, 2006, eq. 2.25):

    k*ᵀ (K + diag(a² + n² / m))⁻¹ r        r [trips]: mean residuals of m windows each

Only trips that ended before this one began count, at most `MOST_TRIPS` of them, and none that is
more than `OLDEST` τ old. Worst case for a window: an offset of `LIMIT` label scales in the wrong
direction, after trips whose residuals were large and are not typical; residuals are clipped to
`LIMIT` before they are used, and a day later little of them is left. Nothing leaves the vehicle.
Needs numpy only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SPREAD = 0.15
BASE = 0.3
TIME_CONSTANT_S = 86_400.0
INDEPENDENT = 0.05
NOISE = 0.3
"""s, b, τ, a and n, in label scales; rounded from what fits VED's vehicles best."""
MOST_TRIPS = 12
OLDEST = 6.0
LIMIT = 0.5


@dataclass(frozen=True)
class PastTrip:
    """A trip that is over: when it began and ended, its coldness, and its mean residual.

    `residual` is the mean of measured less predicted energy of its windows, in label scales;
    `windows` is its length in windows that do not overlap.
    """

    begin_s: float
    end_s: float
    cold: float
    residual: float
    windows: float


def remembered_offset(past: Sequence[PastTrip], begin_s: float, cold: float) -> float:
    """Return the expected mean residual of a trip that begins now, in label scales.

    It is 0 where times are unknown or no earlier trip is recent enough.

    >>> morning = PastTrip(begin_s=0.0, end_s=1800.0, cold=1.0, residual=0.2, windows=30.0)
    >>> round(remembered_offset([morning], begin_s=7200.0, cold=1.0), 3)
    0.161
    """
    oldest_s = begin_s - OLDEST * TIME_CONSTANT_S
    earlier = [trip for trip in past if oldest_s < trip.end_s <= begin_s and _usable(trip)]
    recent = sorted(earlier, key=lambda trip: trip.end_s)[-MOST_TRIPS:]
    if not recent or not math.isfinite(cold):
        return 0.0
    begin = np.array([trip.begin_s for trip in recent])
    amplitude = SPREAD * (BASE + np.array([trip.cold for trip in recent]))
    apart = np.abs(begin[:, None] - begin) / TIME_CONSTANT_S
    covariance = np.outer(amplitude, amplitude) * np.exp(-apart)
    windows = np.array([max(trip.windows, 1.0) for trip in recent])
    noise = np.diag(INDEPENDENT**2 + NOISE**2 / windows)
    residual = np.clip([trip.residual for trip in recent], -LIMIT, LIMIT)
    to_now = amplitude * SPREAD * (BASE + cold) * np.exp((begin - begin_s) / TIME_CONSTANT_S)
    offset = to_now @ np.linalg.solve(covariance + noise, residual)
    return float(np.clip(offset, -LIMIT, LIMIT))


def _usable(trip: PastTrip) -> bool:
    return math.isfinite(trip.begin_s + trip.cold + trip.residual) and trip.windows > 0
