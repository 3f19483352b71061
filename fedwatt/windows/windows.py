"""Windows as indices and their energy labels (paper `eq:window_input_sf`, `eq:window_label_sf`).

A window of length L that ends at second r covers seconds r-L+1 to r of one trip.
"""

import numpy as np

from fedwatt.telemetry.trip import BoolArray as BoolArray
from fedwatt.telemetry.trip import FloatArray, IntArray


def window_ends(seconds: int, *, length: int = 60, stride: int = 1) -> IntArray:
    """Last second of each full window of one trip, shape [W]; empty when the trip is too short.

    >>> window_ends(5, length=3)
    array([2, 3, 4])
    >>> window_ends(2, length=3)
    array([], dtype=int64)
    """
    return np.arange(length - 1, seconds, stride, dtype=np.int64)


def window_sums(values: FloatArray, ends: IntArray, *, length: int = 60) -> FloatArray:
    """Sum of `values` [seconds] over each window, shape [W], from one float64 cumulative sum.

    >>> window_sums(np.array([1.0, 2.0, -4.0, 8.0]), np.array([1, 3]), length=2)
    array([3., 4.])
    """
    total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    return np.asarray(total[ends + 1] - total[ends + 1 - length])


def window_energy(energy_wh: FloatArray, ends: IntArray, *, length: int = 60) -> FloatArray:
    """Net energy that left the pack in each window, Wh, shape [W] (`eq:window_label_sf`)."""
    return window_sums(energy_wh, ends, length=length)


def window_means(values: FloatArray, ends: IntArray, *, length: int = 60) -> FloatArray:
    """Mean of `values` [seconds] over each window, shape [W]."""
    return window_sums(values, ends, length=length) / length


def known_windows(finite: FloatArray, ends: IntArray, *, length: int = 60) -> BoolArray:
    """Windows of which at least half of the seconds are known, [W]; `known` is 0 or 1, [seconds].

    >>> known_windows(np.array([0.0, 1.0, 0.0, 0.0]), np.array([1, 3]), length=2)
    array([ True, False])
    """
    # In counts, which are exact, and not in means.
    return 2 * window_sums(finite, ends, length=length) >= length
