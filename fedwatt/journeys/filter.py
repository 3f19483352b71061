"""What a trip has shown so far, for what comes next: a small Kalman filter on board.

A window's energy differs from its prediction by

    residual = constant + drift + load · predicted + noise

`constant` is what some consumer takes all the trip long, `drift` what comes and goes (an
Ornstein-Uhlenbeck process), `load` a factor on the prediction (passengers, wind, tyres), `noise`
the window's own. How large they usually are is the fleet's to know (`journeys.prior`); their values
are this trip's, and stay in the vehicle. The step of the filter is `journeys.kalman`'s.

Windows overlap and their noise with them, so windows of one phase (those that end a multiple of a
window's length apart) have a filter of their own: `window` filters of three states, of which one
takes a step each second. What a filter says of a window comes from windows that ended before it
began.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedwatt.errors import check
from fedwatt.journeys.kalman import State, begin, carried, expected, updated
from fedwatt.telemetry.trip import FloatArray


@dataclass(frozen=True, kw_only=True)
class TripPrior:
    """Standard deviations before a trip has shown anything, in Wh a window; `load` is a ratio."""

    constant_wh: float
    drift_wh: float
    drift_s: float
    load: float
    noise_wh: float
    factor: float = 1.645
    """Half the width of a window's interval in standard deviations."""

    def __post_init__(self) -> None:
        for name in ("constant_wh", "drift_wh", "load"):
            value = getattr(self, name)
            check(self, name, math.isfinite(value) and value >= 0, "at least 0")
        for name in ("drift_s", "noise_wh", "factor"):
            value = getattr(self, name)
            check(self, name, math.isfinite(value) and value > 0, "above 0")


@dataclass(frozen=True)
class Correction:
    """What to add to a prediction, and the standard deviation of what then remains, in Wh."""

    wh: float
    deviation_wh: float


class TripFilter:
    """The filters of one trip."""

    def __init__(self, prior: TripPrior, window: int) -> None:
        self.prior, self.window = prior, window
        self._begin = begin(prior.constant_wh, prior.drift_wh, prior.load)
        self.ignored = 0
        self._states: dict[int, tuple[int, State]] = {}
        self._latest: tuple[int, State] = (0, self._begin)

    def expected(self, second: int, predicted_wh: float, seconds: int | None = None) -> Correction:
        """For the window that ends at `second` of the trip, from windows before it.

        `seconds` of it are in the trip (None: all).
        """
        share = 1.0 if seconds is None else seconds / self.window
        state = self._carried(second)
        mean_wh, variance = expected(state, share, predicted_wh)
        return Correction(mean_wh, math.sqrt(variance + share * self.prior.noise_wh**2))

    def observe(
        self, second: int, predicted_wh: float, measured_wh: float, seconds: int | None = None
    ) -> None:
        """Take in the window that ends at `second`, once its energy has been measured."""
        if not (math.isfinite(measured_wh) and math.isfinite(predicted_wh)):
            return
        share = 1.0 if seconds is None else seconds / self.window
        residual_wh, noise = measured_wh - predicted_wh, share * self.prior.noise_wh**2
        new = updated(self._carried(second), share, predicted_wh, residual_wh, noise)
        if new is None:
            self.ignored += 1
            return
        self._states[second % self.window] = self._latest = (second, new)

    def rest(self, predicted_wh: float, seconds: float) -> Correction:
        """For the next `seconds` of the trip, whose energy was predicted as `predicted_wh`.

        The drift dies away: it is worth τ (1 - e^(-T/τ)) seconds of itself, not T.
        """
        prior, (_, state) = self.prior, self._latest
        windows = seconds / self.window
        lasting = prior.drift_s * -math.expm1(-seconds / prior.drift_s) / self.window
        c, d, x, cc, cd, cx, dd, dx, xx = state
        p = predicted_wh
        mean_wh = c * windows + d * lasting + x * p
        variance = (
            cc * windows**2 + dd * lasting**2 + xx * p**2
            + 2 * (cd * windows * lasting + cx * windows * p + dx * lasting * p)
        )  # fmt: skip
        # What the drift will newly become: the variance of its integral, 2 τ (T - τ (1 - e^(-T/τ)))
        # of a drift's own, less what its present value brings; and the noise.
        whole = 2 * prior.drift_s / self.window * (windows - lasting)
        fresh = max(whole - lasting**2, 0.0) * prior.drift_wh**2
        return Correction(
            mean_wh, math.sqrt(max(variance, 0.0) + fresh + windows * prior.noise_wh**2)
        )

    def _carried(self, second: int) -> State:
        """The state of the second's phase, as far as it is known now; the drift has decayed."""
        then, state = self._states.get(second % self.window, (second, self._begin))
        prior = self.prior
        return (
            state
            if then == second
            else carried(state, second - then, prior.drift_wh, prior.drift_s)
        )

    def to_json(self) -> dict[str, Any]:
        """All that the filter knows, as values that JSON can hold."""
        return {"states": dict(self._states), "latest": self._latest}

    def restore(self, entry: Mapping[str, Any]) -> None:
        """Go on from what `to_json` gave."""
        then, own = entry["latest"]
        self._latest = (int(then), tuple(map(float, own)))
        self._states = {
            int(phase): (int(then), tuple(map(float, own)))
            for phase, (then, own) in entry["states"].items()
        }


def in_trip(
    prior: TripPrior, predicted_wh: FloatArray, measured_wh: FloatArray, window: int
) -> tuple[FloatArray, FloatArray]:
    """Corrected energies and their standard deviations, of a trip's windows, [windows] each.

    The first window ends at second `window`, and every second one more does. Each is corrected by
    what was measured before it began.
    """
    filter = TripFilter(prior, window)
    corrected, deviation = np.empty(len(predicted_wh)), np.empty(len(predicted_wh))
    pairs = zip(predicted_wh.tolist(), measured_wh.tolist(), strict=True)
    for place, (predicted, measured) in enumerate(pairs):
        found = filter.expected(window + place, predicted)
        corrected[place], deviation[place] = predicted + found.wh, found.deviation_wh
        filter.observe(window + place, predicted, measured)
    return corrected, deviation
