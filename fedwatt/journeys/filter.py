"""In-trip correction: a small Kalman filter over what the trip has shown so far.

A window's measured energy differs from its prediction p by

    residual = constant + drift + load · p + noise

`constant` is a consumer that runs all the trip long, `drift` an Ornstein-Uhlenbeck process, `load`
a factor on the prediction (passengers, wind, tyres). Their covariance before the trip begins is

    a₀² + a₁² c² + l² p p' + (d₀ + d₁ c)² e^(-Δ/τ),   noise n₀² + n₁² |p| + n₂² v³ / 10⁴,

with a window's mean speed v in m/s and the trip's coldness c (`coldness`): in the cold a heater
that no channel reports decides. The fleet knows these sizes (`journeys.intervals`); their values
in a trip stay in the vehicle.

Windows overlap and their noise with them, so windows of one phase (those that end a multiple of a
window's length apart) have a filter each. A filter's correction of a window comes from windows that
ended before it began. An innovation beyond `CLIP` standard deviations counts as `CLIP`: rejecting
it would discard a heater that was switched on, and taking it whole would let one broken reading
rule the rest of the trip. Beyond `ABSURD` it is no energy of driving, and is ignored.

Kalman, "A new approach to linear filtering and prediction problems", 1960. Needs numpy only.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedwatt.errors import check
from fedwatt.telemetry.trip import FloatArray

CLIP = 4.0
ABSURD = 20.0
"""Standard deviations beyond which a residual is charging, towing or a broken sensor."""
DRAG = 1e4
"""v³ in m³/s³ at which the noise of fast driving has its standard deviation n₂."""
State = tuple[Any, ...]
"""Means of constant, drift and load, then variances and covariances: cc, cd, cl, dd, dl, ll.

Each is a number, or an array of as many trips or phases as are filtered at once."""


def coldness(ambient_c: float) -> float:
    """Return how cold it is, 0 from 15 °C up to 2 at -15 °C and below.

    >>> coldness(20.0), coldness(0.0), coldness(-40.0)
    (0.0, 1.0, 2.0)
    """
    return min(max((15.0 - ambient_c) / 15.0, 0.0), 2.0) if math.isfinite(ambient_c) else 0.0


@dataclass(frozen=True, kw_only=True)
class TripPrior:
    """Standard deviations before a trip has shown anything, in Wh per window; `load` is a ratio.

    The `_cold` parts count once per unit of coldness. `noise_load_wh` squared is multiplied by the
    prediction's absolute value, `noise_drag_wh` squared by v³ / 10⁴.
    """

    constant_wh: float
    drift_wh: float
    drift_s: float
    load: float
    noise_wh: float
    constant_cold_wh: float = 0.0
    drift_cold_wh: float = 0.0
    noise_load_wh: float = 0.0
    noise_drag_wh: float = 0.0
    factor: float = 1.645
    """Half the width of an in-trip interval in standard deviations."""

    def __post_init__(self) -> None:
        for name in vars(self):
            value = getattr(self, name)
            positive = name in ("drift_s", "noise_wh", "factor")
            valid = math.isfinite(value) and (value > 0 if positive else value >= 0)
            check(self, name, valid, "above 0" if positive else "at least 0")

    def initial_state(self, cold: float) -> State:
        """Return the state of the filter before a trip, at a coldness from 0 to 2."""
        constant = self.constant_wh**2 + (self.constant_cold_wh * cold) ** 2
        return (0.0, 0.0, 0.0, constant, 0.0, 0.0, self.drift(cold) ** 2, 0.0, self.load**2)

    def drift(self, cold: float) -> float:
        """Return the standard deviation of the drift at a coldness, Wh."""
        return self.drift_wh + self.drift_cold_wh * cold

    def noise(self, predicted_wh: Any, speed_mps: Any) -> Any:
        """Return the variance of a window's noise, Wh²; numbers or arrays alike."""
        of_load = self.noise_load_wh**2 * abs(predicted_wh)
        return self.noise_wh**2 + of_load + self.noise_drag_wh**2 * speed_mps**3 / DRAG

    def window_deviation_wh(
        self, predicted_wh: FloatArray, speed_mps: FloatArray, cold: float
    ) -> FloatArray:
        """Return the standard deviation of windows' errors before the trip begins, [windows]."""
        state = self.initial_state(cold)
        shared = state[3] + state[6] + state[8] * predicted_wh**2
        return np.asarray(np.sqrt(shared + self.noise(predicted_wh, speed_mps)))

    def trip_deviation_wh(
        self, predicted_wh: Any, windows: Any, speed_mps: Any, cold: float, window: int
    ) -> FloatArray:
        """Return the standard deviation of the error of a trip of so many `windows`, Wh."""
        state = self.initial_state(cold)
        seconds = np.asarray(windows, dtype=np.float64) * window
        return np.asarray(
            self.remainder(state, predicted_wh, seconds, speed_mps, cold, window).deviation_wh
        )

    def remainder(
        self,
        state: "State",
        predicted_wh: Any,
        seconds: Any,
        speed_mps: Any,
        cold: float,
        window: int,
    ) -> "Correction":
        """Return the expected error of the prediction for the next `seconds`, and its variance.

        The drift decays: over T seconds it counts for τ (1 - e^(-T/τ)) seconds, not T. Its integral
        has the variance 2 τ (T - τ (1 - e^(-T/τ))) per variance of the drift.
        """
        windows = seconds / window
        lasting = self.drift_s * -np.expm1(-seconds / self.drift_s) / window
        c, d, x, cc, cd, cx, dd, dx, xx = state
        p = predicted_wh
        mean_wh = c * windows + d * lasting + x * p
        variance = (
            cc * windows**2
            + dd * lasting**2
            + xx * p**2
            + 2 * (cd * windows * lasting + cx * windows * p + dx * lasting * p)
        )
        # Less the part that the drift's present value explains.
        integral = 2 * self.drift_s / window * (windows - lasting)
        fresh = np.maximum(integral - lasting**2, 0.0) * self.drift(cold) ** 2
        noise = windows * self.noise(p / np.maximum(windows, 1e-9), speed_mps)
        return Correction(mean_wh, np.sqrt(np.maximum(variance, 0.0) + fresh + noise))


def carried(state: State, seconds: float, drift: float, drift_s: float) -> State:
    """Return the state so many seconds later: drift decays, its deviation tends to `drift`."""
    decay = math.exp(-seconds / drift_s)
    c, d, x, cc, cd, cx, dd, dx, xx = state
    fresh = (1 - decay * decay) * drift**2
    return (c, decay * d, x, cc, decay * cd, cx, decay * decay * dd + fresh, decay * dx, xx)


def expected(state: State, share: float, predicted: Any) -> tuple[Any, Any]:
    """Return mean and variance of a window's residual, measured less predicted, by `state`.

    `share` of the window lies in the trip, and `predicted` is its energy. Its noise is left out.
    """
    c, d, x, cc, cd, cx, dd, dx, xx = state
    p = predicted
    variance = share * share * (cc + 2 * cd + dd) + 2 * share * p * (cx + dx) + p * p * xx
    return share * (c + d) + p * x, np.maximum(variance, 0.0)


def updated(state: State, share: float, predicted: Any, residual: Any, noise: Any) -> State:
    """Return the state after a residual with noise of this variance; unchanged if it is absurd."""
    mean, variance = expected(state, share, predicted)
    total = variance + noise
    innovation = residual - mean
    deviation = np.sqrt(total)
    used = np.where(abs(innovation) <= ABSURD * deviation, 1.0, 0.0)  # not for NaN
    limit = CLIP * deviation
    innovation = np.where(used, np.clip(innovation, -limit, limit), 0.0)
    c, d, x, cc, cd, cx, dd, dx, xx = state
    # Covariances of the parts with the residual.
    to_c = share * (cc + cd) + predicted * cx
    to_d = share * (cd + dd) + predicted * dx
    to_x = share * (cx + dx) + predicted * xx
    gain = innovation / total
    less = used / total
    return (
        *(c + to_c * gain, d + to_d * gain, x + to_x * gain),
        *(cc - to_c * to_c * less, cd - to_c * to_d * less, cx - to_c * to_x * less),
        *(dd - to_d * to_d * less, dx - to_d * to_x * less, xx - to_x * to_x * less),
    )


@dataclass(frozen=True)
class Correction:
    """A correction of a prediction, and the standard deviation of the error that remains, in Wh."""

    wh: float
    deviation_wh: float


class TripFilter:
    """The filters of one trip, one per phase of its windows."""

    def __init__(self, prior: TripPrior, window: int, cold: float = 0.0) -> None:
        self.prior = prior
        self.window = window
        self.cold = cold
        self._states: dict[int, tuple[int, State]] = {}
        self._latest: tuple[int, State] = (0, prior.initial_state(cold))

    def begin(self, ambient_c: float) -> None:
        """Set the trip's coldness, as long as nothing has been observed."""
        if not self._states:
            self.cold = coldness(ambient_c)
            self._latest = (0, self.prior.initial_state(self.cold))

    def expected(self, second: int, predicted_wh: float, speed_mps: float = 0.0) -> Correction:
        """Return the correction of the window that ends at `second`, from windows before it.

        `speed_mps` is the window's mean speed.
        """
        mean_wh, variance = expected(self._carried(second), 1.0, predicted_wh)
        noise = self.prior.noise(predicted_wh, speed_mps)
        return Correction(mean_wh, math.sqrt(variance + noise))

    def observe(
        self, second: int, predicted_wh: float, measured_wh: float, speed_mps: float = 0.0
    ) -> None:
        """Update with the measured energy of the window that ends at `second`."""
        if not (math.isfinite(measured_wh) and math.isfinite(predicted_wh)):
            return
        noise = self.prior.noise(predicted_wh, speed_mps)
        residual_wh = measured_wh - predicted_wh
        new = updated(self._carried(second), 1.0, predicted_wh, residual_wh, noise)
        self._latest = (second, new)
        self._states[second % self.window] = self._latest

    def remainder(self, predicted_wh: float, seconds: float, speed_mps: float = 0.0) -> Correction:
        """Return the expected error of the prediction for the next `seconds`, and its variance."""
        state = self._latest[1]
        cold = self.cold
        return self.prior.remainder(state, predicted_wh, seconds, speed_mps, cold, self.window)

    def _carried(self, second: int) -> State:
        """Return the state of the second's phase at that second."""
        initial = self.prior.initial_state(self.cold)
        then, state = self._states.get(second % self.window, (second, initial))
        if then == second:
            return state
        return carried(state, second - then, self.prior.drift(self.cold), self.prior.drift_s)

    def to_json(self) -> dict[str, Any]:
        """Return the filter's state as values that JSON can hold."""
        return {"states": dict(self._states), "latest": self._latest, "cold": self.cold}

    def restore(self, entry: Mapping[str, Any]) -> None:
        """Set the filter's state from the JSON of `to_json`."""
        then, latest = entry["latest"]
        self.cold = float(entry["cold"])
        self._latest = (int(then), tuple(map(float, latest)))
        self._states = {
            int(phase): (int(when), tuple(map(float, state)))
            for phase, (when, state) in entry["states"].items()
        }


def in_trip(
    prior: TripPrior,
    predicted_wh: FloatArray,
    measured_wh: FloatArray,
    window: int,
    *,
    cold: float = 0.0,
    speed_mps: FloatArray | None = None,
    stride: int = 1,
) -> tuple[FloatArray, FloatArray]:
    """Return corrected energies and their standard deviations of a trip's windows, [windows] each.

    Windows end `stride` seconds apart, which must divide `window`. The result is `TripFilter`'s,
    with all phases computed at once.
    """
    phases = window // stride
    steps = -(-len(predicted_wh) // phases)
    speed = np.zeros(len(predicted_wh)) if speed_mps is None else speed_mps

    def rows(values: FloatArray, fill: float) -> FloatArray:
        short = steps * phases - len(values)
        return np.pad(values, (0, short), constant_values=fill).reshape(steps, phases)

    predicted = rows(predicted_wh, 0.0)
    residual = rows(measured_wh - predicted_wh, np.nan)
    noise = prior.noise(predicted, rows(speed, 0.0))
    state = prior.initial_state(cold)
    corrected = np.empty_like(predicted)
    deviation = np.empty_like(predicted)
    for step in range(steps):
        if step:
            state = carried(state, window, prior.drift(cold), prior.drift_s)
        expected_wh, variance = expected(state, 1.0, predicted[step])
        corrected[step] = predicted[step] + expected_wh
        deviation[step] = np.sqrt(variance + noise[step])
        state = updated(state, 1.0, predicted[step], residual[step], noise[step])
    count = len(predicted_wh)
    return corrected.ravel()[:count], deviation.ravel()[:count]
