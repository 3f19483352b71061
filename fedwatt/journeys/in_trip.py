"""Correct a route's forecast while it is driven, from the energy measured so far.

The route is cut into blocks of 200 m. What a block took beyond its forecast is

    y = (a + d) t + l ê + k Δv² + noise,    noise variance 15² + 1.5² t  (Wh², t in s)

with a constant and a drifting auxiliary power a and d (d an Ornstein-Uhlenbeck process), a load
factor l on the forecast ê, and the kinetic energy that the block put in hand. A Kalman filter over
(a, d, l) (`journeys.filter`) gives what they will add to the rest of the way; the forecast of the
rest is corrected by κ of that, and by what the speed of the moment has in hand:

    rest = forecast + κ · (states) + q v² + c

Scaling the rest by the ratio so far instead makes it worse: the first minutes are not like the
others. Error bars of the total are those of the whole route, made narrower along the way. κ, q, c
and the widths are rounded from fits to the training trips of VED's vehicles. Fits by each fleet to
its own trips, which took four further exchanges, gave the same errors on seven splits, two of which
had no part in the rounding.
"""

from dataclasses import dataclass, field

import numpy as np

from fedwatt.journeys.filter import State, carried, updated
from fedwatt.journeys.route_intervals import LEVELS
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
STATES_SHARE = 0.67
SPEED_WH = -0.18
CONSTANT_WH = 16.5
"""κ, q and c."""
MOST_CHANGE = 0.6
MOST_CHANGE_WH = 150.0
"""The rest is corrected by at most 60 % of its forecast and 150 Wh, whatever the trip has shown."""
DRIVEN = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
WIDTH = (1.0, 0.9, 0.75, 0.6, 0.4, 0.0)
"""Width of the whole route's error bars that is left once so large a share is driven."""


@dataclass
class UnderWay:
    """A route that is being driven; `metres`, `energy_wh` and `seconds` [steps] are its forecast.

    `errors_wh` [99] are the errors of the whole route's energy at 99 levels, as forecast.
    `measured_wh` and `speed_mps` are those of the last step.
    """

    metres: FloatArray
    energy_wh: FloatArray
    seconds: FloatArray
    errors_wh: FloatArray = field(default_factory=lambda: np.zeros(len(LEVELS)))
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
        if self._now_m >= self.metres[-1]:
            return 0.0
        left = self.forecast_left_wh
        change = STATES_SHARE * self.states_left_wh + SPEED_WH * self.speed_mps**2 + CONSTANT_WH
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
        return self.total_wh + float(np.interp(share, DRIVEN, WIDTH)) * self.errors_wh
