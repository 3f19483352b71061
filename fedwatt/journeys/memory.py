"""Memory of earlier trips: what a cold vehicle took beyond its predictions, carried to the next.

A heater that no channel reports, a low tyre or a roof box last longer than one trip. The mean
residual of a trip's windows has, in label scales and beside an independent part, the covariance

    k(t, t') = s² (b + c)(b + c') e^(-|Δ| / τ)

between trips that began Δ apart, with the trips' coldness c (`filter.coldness`). Before a trip
begins, the posterior mean given the vehicle's earlier trips is (Gaussian-process regression:
Rasmussen and Williams, 2006, eq. 2.25)

    o = k*ᵀ (K + diag v)⁻¹ r,    v = a² + n² / m

with r [trips] the mean residuals of m windows each. Not every vehicle is like that. The same
formula for each earlier trip t, from those before it, gives o_t and what it was worth; the offset
is o · clip(ω, 0, 1) with

    ω = (W + Σ r_t o_t / v_t) / (W + Σ o_t² / v_t)

so an offset counts as far as the vehicle's earlier trips, each predicted from those before it, have
gained by it: one whose trips do not resemble each other soon has none. A condition on validation
trips besides was measured and left out: it cost a third of the gain, and the vehicle that lost most
lost as much. Only trips that ended before this one began count: the latest `MOST_TRIPS` that are at
most `OLDEST` τ old for o, and twice as many of any age for ω. Worst case for a window: an offset of
`LIMIT` label scales in the wrong direction, after trips whose residuals were large and alike;
residuals are clipped to `LIMIT` before they are used, and a day later little of them is left.
Nothing leaves the vehicle. Needs numpy only.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedwatt.journeys.filter import coldness
from fedwatt.telemetry.trip import FloatArray, Trip

SPREAD = 0.15
BASE = 0.3
TIME_CONSTANT_S = 86_400.0
INDEPENDENT = 0.05
NOISE = 0.3
"""s, b, τ, a and n, in label scales; rounded from what fits VED's vehicles best."""
MOST_TRIPS = 12
OLDEST = 6.0
LIMIT = 0.5
TRUST = 3.0
"""W: squared offsets, in independent variances, for which the formula is trusted beforehand."""


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

    @property
    def usable(self) -> bool:
        """Return whether the trip's numbers are finite."""
        total = self.begin_s + self.end_s + self.cold + self.residual
        return math.isfinite(total) and self.windows > 0


def remembered_offset(past: Sequence[PastTrip], begin_s: float, cold: float) -> float:
    """Return the expected mean residual of a trip that begins now, in label scales.

    It is 0 where times are unknown or no earlier trip is recent enough.

    >>> morning = PastTrip(begin_s=0.0, end_s=1800.0, cold=1.0, residual=0.2, windows=30.0)
    >>> round(remembered_offset([morning], begin_s=7200.0, cold=1.0), 3)
    0.161
    """
    usable = sorted((trip for trip in past if trip.usable), key=lambda trip: trip.end_s)
    earlier = [trip for trip in usable if trip.end_s <= begin_s]
    offset = _posterior_mean(earlier, begin_s, cold)
    if not offset:
        return 0.0
    agreement = square = TRUST
    for trip in earlier[-2 * MOST_TRIPS :]:
        then = _posterior_mean(earlier, trip.begin_s, trip.cold)
        weight = 1 / _independent_variance(trip)
        agreement += weight * float(np.clip(trip.residual, -LIMIT, LIMIT)) * then
        square += weight * then**2
    return offset * min(max(agreement / square, 0.0), 1.0)


def _posterior_mean(past: Sequence[PastTrip], begin_s: float, cold: float) -> float:
    """Return o of a trip that begins at `begin_s`, from trips in the order in which they ended."""
    oldest_s = begin_s - OLDEST * TIME_CONSTANT_S
    recent = [trip for trip in past if oldest_s < trip.end_s <= begin_s][-MOST_TRIPS:]
    if not recent or not math.isfinite(cold):
        return 0.0
    begin = np.array([trip.begin_s for trip in recent])
    amplitude = SPREAD * (BASE + np.array([trip.cold for trip in recent]))
    apart = np.abs(begin[:, None] - begin) / TIME_CONSTANT_S
    covariance = np.outer(amplitude, amplitude) * np.exp(-apart)
    noise = np.diag([_independent_variance(trip) for trip in recent])
    residual = np.clip([trip.residual for trip in recent], -LIMIT, LIMIT)
    to_now = amplitude * SPREAD * (BASE + cold) * np.exp((begin - begin_s) / TIME_CONSTANT_S)
    offset = to_now @ np.linalg.solve(covariance + noise, residual)
    return float(np.clip(offset, -LIMIT, LIMIT))


def _independent_variance(trip: PastTrip) -> float:
    return INDEPENDENT**2 + NOISE**2 / max(trip.windows, 1.0)


def earlier_trips(trips: Iterable[Trip], begin_s: float) -> list[Trip]:
    """Return the trips that `remembered_offset` would use, in the order in which they ended."""
    ended = [(trip.start_time_s + trip.seconds, trip) for trip in trips]
    earlier = sorted((pair for pair in ended if pair[0] <= begin_s), key=lambda pair: pair[0])
    if not earlier or earlier[-1][0] <= begin_s - OLDEST * TIME_CONSTANT_S:
        return []
    return [trip for _, trip in earlier[-2 * MOST_TRIPS :]]


def past_trip(trip: Trip, residual_wh: FloatArray, *, window: int, scale_wh: float) -> PastTrip:
    """Return a trip that is over, from measured less predicted energy of its windows [windows].

    `window` is a window's number of samples, `scale_wh` the vehicle's label scale.
    """
    return PastTrip(
        begin_s=trip.start_time_s,
        end_s=trip.start_time_s + trip.seconds,
        cold=trip_coldness(trip),
        residual=float(np.mean(residual_wh)) / scale_wh,
        windows=trip.seconds / window,
    )


def trip_coldness(trip: Trip) -> float:
    """Return the coldness of a recorded trip; 0 where its temperature is unknown."""
    return coldness(float(np.median(trip.channels.get("ambient_c", math.nan))))


@dataclass
class TripMemory:
    """The memory of a deployed vehicle: its past trips, and the residuals of the present one.

    `offset_wh` is what is added to the present trip's windows; None before its first one.
    """

    scale_wh: float
    past: list[PastTrip]
    offset_wh: float | None = None
    residual_wh: float = 0.0
    residuals: int = 0

    def offset(self, begin_s: float, cold: float) -> float:
        """Return the offset of the trip that began at `begin_s`, Wh; the same all trip long."""
        if self.offset_wh is None:
            self.offset_wh = remembered_offset(self.past, begin_s, cold) * self.scale_wh
        return self.offset_wh

    def observe(self, residual_wh: float) -> None:
        """Add measured less predicted energy of a window, offset included; ignore NaN."""
        if math.isfinite(residual_wh):
            self.residual_wh += residual_wh + (self.offset_wh or 0.0)
            self.residuals += 1

    def end_trip(self, begin_s: float, end_s: float, cold: float, windows: float) -> None:
        """Add the trip to the past ones, if its energy was known, and begin another."""
        if self.residuals:
            residual = self.residual_wh / self.residuals / self.scale_wh
            self.past.append(PastTrip(begin_s, end_s, cold, residual, windows))
        self.past = [trip for trip in self.past if trip.usable][-2 * MOST_TRIPS :]
        self.offset_wh = None
        self.residual_wh = 0.0
        self.residuals = 0

    @staticmethod
    def from_json(entry: Mapping[str, Any]) -> "TripMemory":
        """Return the memory from an entry that `dataclasses.asdict` made."""
        return TripMemory(**{**entry, "past": [PastTrip(**trip) for trip in entry["past"]]})
