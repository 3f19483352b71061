"""Uncertainty of an error that is estimated on a sample of the vehicles.

Vehicles are drawn at random, all windows of each. The mean squared error of all windows is then a
ratio of two sums over vehicles, whose variance is that of the vehicles' deviations from it
(Cochran, Sampling Techniques, 1977, section 6.4):

    s²(MSE) = (1 - m/K) / m · Σ_k (S_k - MSE · n_k)² / (m - 1) / n̄²

with m of K vehicles, their squared errors S_k, windows n_k and mean number of windows n̄. The RMSE
is its root, so s(RMSE) = s(MSE) / (2 · RMSE).
"""

from collections.abc import Sequence
from math import nan, sqrt
from typing import Final

import numpy as np

from fedwatt.metrics.errors import ErrorSums

NORMAL_95: Final = 1.959964


def rmse_margin(vehicles: Sequence[ErrorSums], population: int) -> float:
    """Half of the 95 % interval of the RMSE of `population` vehicles, from these of them, in Wh.

    0 where these are all; NaN where fewer than two of them have windows.

    >>> alike = [ErrorSums.of([3.0, 1.0], [1.0, 3.0])] * 5
    >>> rmse_margin(alike, 1000)
    0.0
    """
    squared = np.array([sums.squared_wh2 for sums in vehicles if sums.windows])
    windows = np.array([float(sums.windows) for sums in vehicles if sums.windows])
    count = len(windows)
    if len(vehicles) >= population:
        return 0.0
    if count < 2:
        return nan
    with np.errstate(over="ignore", invalid="ignore"):  # errors without bounds have no margin
        mean = squared.sum() / windows.sum()
        spread = np.square(squared - mean * windows).sum() / (count - 1) / np.square(windows.mean())
    error = sqrt((1 - count / population) / count * spread)
    return _student_95(count - 1) * error / (2 * sqrt(mean)) if mean else 0.0


STUDENT_95: Final = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764}
"""Student's t for 95 % where its expansion is too far off."""


def _student_95(freedom: int) -> float:
    """Student's t for 95 %, by the first terms of its expansion around the normal one.

    >>> round(_student_95(2), 2), round(_student_95(10), 2), round(_student_95(30), 2)
    (4.3, 2.23, 2.04)
    """
    if freedom in STUDENT_95:
        return STUDENT_95[freedom]
    z = NORMAL_95
    first = (z**3 + z) / (4 * freedom)
    return z + first + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
