"""Correct a route's forecast while it is driven, from the energy measured so far.

Way is looked at in blocks of 200 m. What a block took beyond its forecast is

    y = (a + d) t + l ê + k Δv² + noise,    noise variance 15² + 1.5² t  (Wh², t in s)

with a constant and a drifting auxiliary power a and d (d an Ornstein-Uhlenbeck process), a load
factor l on the forecast ê, and the kinetic energy that the block put in hand. A Kalman filter over
(a, d, l) (`journeys.filter`) gives what they will add to the rest of the way; the forecast of the
rest is corrected by κ of that, and by what the speed of the moment has in hand:

    rest = forecast + κ · (states) + q v² + c

κ, q and c are the fleet's, from sums of its training trips (`Moments.sums`). Scaling the rest by
the ratio so far instead makes it worse: the first minutes are not like the others.

Error bars of the total are those of the whole route, made narrower by what the fleet's trips had
left of theirs at that share of the way: counted in bins (`Moments.counts`), which add up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedwatt.journeys.filter import State, carried, updated
from fedwatt.journeys.route_intervals import (
    BINS,
    LEVELS,
    counted_errors,
    quantiles_of,
    relative_errors,
)
from fedwatt.metrics.sums import LARGEST, Fields
from fedwatt.telemetry.trip import FloatArray

BLOCK_M = 200.0
AUXILIARY_W = 420.0
DRIFT_W = 550.0
DRIFT_S = 700.0
LOAD = 0.035
BEGIN: State = (0.0, 0.0, 0.0, AUXILIARY_W**2, 0.0, 0.0, DRIFT_W**2, 0.0, LOAD**2)
NOISE_WH = 15.0
NOISE_WH_S = 1.5
KINETIC_WH = 0.25
"""Wh that a (m/s)² of v² takes."""
HOUR_S = 3600.0
REWEIGHTINGS = 3
USUAL = (0.85, -0.2, 17.0)
"""κ, q and c where a fleet has not found its own."""
MOST_CHANGE = 0.6
MOST_CHANGE_WH = 150.0
"""The rest is corrected by at most 60 % of its forecast and 150 Wh, whatever the trip has shown."""
SHARES = (0.1, 0.25, 0.5, 0.75)
"""Of the way, at which the fleet learns them."""
NO_INTERVALS = np.zeros(len(LEVELS))


@dataclass
class UnderWay:
    """A route that is being driven; `metres`, `energy_wh` and `seconds` [steps] are its forecast.

    `correction` is (κ, q, c). `errors_wh` [99] are the errors of the whole route's energy at 99
    levels, as forecast, and `narrower` [4] is what is left of their width at `SHARES` of the way.
    `measured_wh` and `speed_mps` are those of the last step.
    """

    metres: FloatArray
    energy_wh: FloatArray
    seconds: FloatArray
    correction: tuple[float, float, float] = USUAL
    errors_wh: FloatArray = field(default_factory=lambda: NO_INTERVALS)
    narrower: FloatArray = field(default_factory=lambda: np.ones(len(SHARES)))
    measured_wh: float = 0.0
    speed_mps: float = 0.0
    _state: State = BEGIN
    _now_m: float = 0.0
    _block_m: float = 0.0
    _since: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def step(self, at_m: float, elapsed_s: float, spent_wh: float, speed_mps: float) -> None:
        """Update with the vehicle's position, time and energy since the start, and its speed.

        Energy that is not known (NaN), a way back or a clock set back teach nothing; the filter
        goes on from there.
        """
        if not np.isfinite([at_m, elapsed_s, spent_wh, speed_mps]).all():
            return
        began_s, began_wh, began_v2 = self._since
        self._now_m = at_m
        self.measured_wh = spent_wh
        self.speed_mps = speed_mps
        if at_m < self._block_m or elapsed_s < began_s:
            self._begin(elapsed_s, spent_wh)
        if at_m - self._block_m < BLOCK_M:
            return
        expected = self._up_to(at_m, self.energy_wh) - self._up_to(self._block_m, self.energy_wh)
        took_s = max(elapsed_s - began_s, 1.0)
        gained = KINETIC_WH * (speed_mps**2 - began_v2)
        self._state = carried(self._state, took_s, DRIFT_W, DRIFT_S)
        beyond = spent_wh - began_wh - expected - gained
        noise = NOISE_WH**2 + NOISE_WH_S**2 * took_s
        # An absurd block, such as charging, changes nothing.
        self._state = updated(self._state, took_s / HOUR_S, expected, beyond, noise)
        self._begin(elapsed_s, spent_wh)

    def _begin(self, elapsed_s: float, spent_wh: float) -> None:
        """Begin a new block here."""
        self._block_m, self._since = self._now_m, (elapsed_s, spent_wh, self.speed_mps**2)

    def _up_to(self, at_m: float, total: FloatArray) -> float:
        return float(np.interp(at_m, np.append(0.0, self.metres), np.append(0.0, total)))

    @property
    def forecast_left_wh(self) -> float:
        """The rest as it was forecast before the trip began."""
        return float(self.energy_wh[-1]) - self._up_to(self._now_m, self.energy_wh)

    @property
    def states_left_wh(self) -> float:
        """Energy that the filter's states add to the rest."""
        left_s = max(float(self.seconds[-1]) - self._up_to(self._now_m, self.seconds), 0.0)
        drifting_s = DRIFT_S * (1 - np.exp(-left_s / DRIFT_S))
        auxiliary, drift, load, *_ = self._state
        hours = (auxiliary * left_s + drift * drifting_s) / HOUR_S
        return float(hours + load * self.forecast_left_wh)

    @property
    def left_wh(self) -> float:
        """The rest, corrected; nothing once the end is reached."""
        share, kinetic, constant = self.correction
        if self._now_m >= self.metres[-1]:
            return 0.0
        left = self.forecast_left_wh
        change = share * self.states_left_wh + kinetic * self.speed_mps**2 + constant
        most = MOST_CHANGE * abs(left) + MOST_CHANGE_WH
        return left + min(max(change, -most), most)

    @property
    def total_wh(self) -> float:
        """Energy of the whole route: what was measured, and the corrected rest."""
        return self.measured_wh + self.left_wh

    @property
    def total_levels_wh(self) -> FloatArray:
        """The total at 99 levels (`route_intervals.interval`), narrowing along the route to
        certainty at its end.
        """
        share = min(self._now_m / float(self.metres[-1]), 1.0)
        width = np.interp(share, (0.0, *SHARES, 1.0), (1.0, *self.narrower, 0.0))
        return self.total_wh + float(width) * self.errors_wh


def driven(
    going: UnderWay,
    at_m: FloatArray,
    spent_wh: FloatArray,
    speed_mps: FloatArray,
    share: float,
) -> UnderWay:
    """Return a route after `share` of its way, as a recorded trip went: at_m, spent_wh, ...
    [seconds].

    `going` is at its start; `spent_wh` is the energy since the trip began.
    """
    last = int(np.searchsorted(at_m, share * going.metres[-1]))
    blocks = np.arange(BLOCK_M, at_m[: last + 1].max(initial=0.0) + 1e-9, BLOCK_M)
    for second in np.unique(np.append(np.searchsorted(at_m, blocks), last)):
        at = min(int(second), len(at_m) - 1)
        going.step(float(at_m[at]), at + 1.0, float(spent_wh[at]), float(speed_mps[at]))
    return going


@dataclass(frozen=True, eq=False)
class Moments:
    """Points during a vehicle's training trips, from which in-trip corrections are fitted.

    x            [moments, 3]: regressors of κ, q and c
    beyond_wh    [moments]: energy of the remaining trip minus its forecast
    size_wh      [moments]: energy of the trip, the denominator of errors
    forecast_wh  [moments]: forecast of the trip's energy before departure

    Trips follow each other, each with a moment for every one of `SHARES`.
    """

    x: FloatArray
    beyond_wh: FloatArray
    size_wh: FloatArray
    forecast_wh: FloatArray

    def sums(self, correction: FloatArray) -> dict[str, FloatArray]:
        """Return the vehicle's sums for κ, q and c, reweighted for absolute deviations."""
        off = np.abs(self.beyond_wh - self.x @ correction) / self.size_wh
        weights = 1 / (self.size_wh**2 * np.maximum(off, 0.02))
        weighed = self.x * weights[:, None]
        return {"matrix": (weighed.T @ self.x).ravel(), "right": weighed.T @ self.beyond_wh}

    def counts(self, correction: FloatArray, noise: float) -> dict[str, FloatArray]:
        """Return the counts of relative errors of the total by bin, [5 · 320].

        As forecast before the start, then as corrected at each of `SHARES`; `noise` is b of
        `route_intervals`.
        """
        off = self.beyond_wh - self.x @ correction
        in_trip = relative_errors(self.forecast_wh + off, self.forecast_wh, noise)
        before = relative_errors(self.size_wh, self.forecast_wh, noise)
        each = np.column_stack([before[:: len(SHARES)], in_trip.reshape(-1, len(SHARES))])
        return {"counts": np.concatenate([counted_errors(column) for column in each.T])}


def moments(trips: Iterable[tuple[UnderWay, float]]) -> Moments:
    """Return moments of trips under way, each with the trip's total energy, Wh."""
    rows = [
        (
            (going.states_left_wh, going.speed_mps**2, 1.0),
            total - going.measured_wh - going.forecast_left_wh,
            max(total, NOISE_WH),
            float(going.energy_wh[-1]),
        )
        for going, total in trips
    ]
    x = np.array([row[0] for row in rows], dtype=np.float64).reshape(len(rows), 3)
    columns = (np.array([row[n] for row in rows], dtype=np.float64) for n in (1, 2, 3))
    return Moments(x, *columns)


CORRECTION_FIELDS: Fields = {"matrix": (9, LARGEST), "right": (3, LARGEST)}
COUNT_FIELDS: Fields = {"counts": ((1 + len(SHARES)) * BINS, LARGEST)}


def narrower_intervals(total: Mapping[str, FloatArray]) -> FloatArray:
    """Return the remaining width of 90 % intervals at each of `SHARES`, [4], from the fleet's
    counts.
    """
    if not total["counts"].any():
        return np.ones(len(SHARES))
    before, *in_trip = (
        float(np.diff(quantiles_of(counts, np.array([0.05, 0.95])))[0])
        for counts in total["counts"].reshape(1 + len(SHARES), BINS)
    )
    remaining = np.array(in_trip) / max(before, 1e-12)
    # Nobody knows less than before.
    return np.minimum.accumulate(np.minimum(remaining, 1.0))


def corrected(total: Mapping[str, FloatArray]) -> FloatArray:
    """Return κ, q and c [3] from the fleet's sums; the defaults without sums."""
    matrix = total["matrix"].reshape(3, 3)
    if np.linalg.matrix_rank(matrix) < 3:
        return np.array(USUAL)
    correction: FloatArray = np.linalg.solve(matrix, total["right"]).astype(np.float64)
    # Where climb is not known, states mistake slopes for a load: less than nothing is not believed.
    correction[0] = np.clip(correction[0], 0.0, 1.0)
    return correction
