"""Which sign current and power have while the pack gives energy, from how the vehicle moves."""

import numpy as np

from fedwatt.data.trip import FloatArray

SPEEDING_UP, MOVING = 0.3, 1.0
"""m/s a row, and m/s."""
LEAST_ROWS = 20
CLEAR = 0.2
"""Difference between speeding up and slowing down, in standard deviations, that tells."""


def discharge_sign(values: FloatArray, speed_mps: FloatArray) -> tuple[str, str]:
    """("positive" | "negative", why); both arrays [rows].

    Speeding up takes energy and slowing down gives some back: if the numbers are larger while the
    vehicle speeds up, discharge is positive. Where the motion does not tell, a pack gives more than
    it takes while the vehicle moves.
    """
    known = np.isfinite(values) & np.isfinite(speed_mps)
    value, speed = values[known], speed_mps[known]
    if not len(value):
        return "positive", "not known: no readings to guess from"
    change = np.diff(speed, append=speed[-1:])
    up, down = value[change > SPEEDING_UP], value[change < -SPEEDING_UP]
    spread = float(value.std())
    if min(len(up), len(down)) >= LEAST_ROWS and spread > 0:
        difference = float(up.mean() - down.mean())
        if abs(difference) > CLEAR * spread:
            sign = "positive" if difference > 0 else "negative"
            return sign, f"{'larger' if difference > 0 else 'smaller'} while speed rises"
    moving = value[speed > MOVING]
    mean = float((moving if len(moving) else value).mean())
    if mean == 0:
        return "positive", "not known: its mean in the first rows is 0"
    sign = "negative" if mean < 0 else "positive"
    return sign, f"guessed: its mean in the first rows is {sign}"
