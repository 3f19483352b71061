"""One step of the Kalman filters on board: a constant, a drift and a load, seen through their sum.

What a stretch of time or way took beyond its prediction p is

    residual = t · (constant + drift) + load · p + noise

with t the stretch's share of the unit that `constant` and `drift` are in. The drift is an
Ornstein-Uhlenbeck process, the other two last. Kalman, "A new approach to linear filtering and
prediction problems", 1960. Plain numbers, no arrays: a step takes a few microseconds.
"""

import math

OUTLIER = 5.0
"""Standard deviations beyond which a residual is no news: charging, tow, a broken sensor."""
State = tuple[float, ...]
"""Means of constant, drift and load, then variances and covariances: cc, cd, cl, dd, dl, ll."""


def begin(constant: float, drift: float, load: float) -> State:
    """The state before anything was seen, from standard deviations."""
    return (0.0, 0.0, 0.0, constant**2, 0.0, 0.0, drift**2, 0.0, load**2)


def carried(state: State, seconds: float, drift: float, drift_s: float) -> State:
    """The state so many seconds later: the drift decays with `drift_s` and spreads to `drift`."""
    decay = math.exp(-seconds / drift_s)
    c, d, x, cc, cd, cx, dd, dx, xx = state
    fresh = (1 - decay * decay) * drift**2
    return (c, decay * d, x, cc, decay * cd, cx, decay * decay * dd + fresh, decay * dx, xx)


def expected(state: State, share: float, predicted: float) -> tuple[float, float]:
    """Mean and variance of the residual of a stretch, without noise."""
    c, d, x, cc, cd, cx, dd, dx, xx = state
    p = predicted
    variance = share * share * (cc + 2 * cd + dd) + 2 * share * p * (cx + dx) + p * p * xx
    return share * (c + d) + p * x, max(variance, 0.0)


def updated(
    state: State, share: float, predicted: float, residual: float, noise: float
) -> State | None:
    """The state after a residual with noise of this variance; None for an outlier."""
    mean, variance = expected(state, share, predicted)
    total, surprise = variance + noise, residual - mean
    if surprise**2 > OUTLIER**2 * total:
        return None
    c, d, x, cc, cd, cx, dd, dx, xx = state
    # Gains: the covariances of the parts with what was observed, over its variance.
    to_c, to_d = share * (cc + cd) + predicted * cx, share * (cd + dd) + predicted * dx
    to_x = share * (cx + dx) + predicted * xx
    gain = surprise / total
    return (
        *(c + to_c * gain, d + to_d * gain, x + to_x * gain),
        *(cc - to_c * to_c / total, cd - to_c * to_d / total, cx - to_c * to_x / total),
        *(dd - to_d * to_d / total, dx - to_d * to_x / total, xx - to_x * to_x / total),
    )
