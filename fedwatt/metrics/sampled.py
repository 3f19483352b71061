"""How far the error of a sample of vehicles may be from that of the whole fleet.

The mean squared error of a fleet is a ratio of two totals, Σ_k S_k / Σ_k W_k, with a vehicle's sum
of squares S_k and its windows W_k. Estimated from n vehicles of N, drawn at random without
replacement, its variance is, linearised (Cochran, Sampling Techniques, chapter 6),

    (1 − n/N) · n/(n − 1) · Σ_k (S_k − mse·W_k)² / (Σ_k W_k)²
"""

from collections.abc import Sequence
from math import nan, sqrt
from typing import Final

from fedwatt.metrics.errors import ErrorSums, micro

NORMAL_95: Final = 1.96


def rmse_margin(sums: Sequence[ErrorSums], vehicles: int) -> float:
    """Half the width of the 95 % interval of the RMSE of `vehicles`, of which some have `sums`.

    0 where all of them have; unknown with fewer than two.

    >>> two = [ErrorSums(windows=10, squared_wh2=40.0), ErrorSums(windows=10, squared_wh2=90.0)]
    >>> round(rmse_margin(two, 4), 3)  # 1.96 · √3.125 / (2 · √6.5)
    0.68
    >>> rmse_margin(two, 2)
    0.0
    """
    own = [one for one in sums if one.windows]
    pooled, n = micro(own), len(own)
    if n < 2 or not pooled.rmse:
        return nan
    mse = pooled.rmse**2
    spread = sum((one.squared_wh2 - mse * one.windows) ** 2 for one in own)
    variance = max(1 - n / vehicles, 0.0) * n / (n - 1) * spread / pooled.windows**2
    return NORMAL_95 * sqrt(variance) / (2 * pooled.rmse)
