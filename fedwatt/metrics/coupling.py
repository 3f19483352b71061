"""Does roughness go with drift? Correlations over the participants of one round.

Paper, `eq:roughness_drift_corr`. Over a handful of vehicles a correlation is noise, and it does not
exist when one side is constant (at the paper's probe radius, most vehicles have roughness 0): both
give NaN, which is never filled in.
"""

from math import nan, sqrt
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

FEWEST_PARTICIPANTS: Final = 8

CONSTANT: Final = 1e-12
"""A spread this small, relative to the largest value, is rounding and not a difference."""


def pearson(first: ArrayLike, second: ArrayLike) -> float:
    """Linear correlation, [participants] each; pairs with a missing value are left out."""
    return _correlation(*_pairs(first, second))


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Rank correlation, [participants] each; equal values share their average rank."""
    x, y = _pairs(first, second)
    if x.size < FEWEST_PARTICIPANTS or x.min() == x.max():
        return nan
    return _correlation(ranks(x), ranks(y))


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1, ties averaged.

    >>> ranks(np.array([30.0, 10.0, 30.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    order = values.argsort(kind="stable")
    ordered = values[order]
    new = ordered[1:] != ordered[:-1]
    rank = np.empty(values.size)
    if new.all():
        rank[order] = np.arange(1.0, values.size + 1)
        return rank
    first = np.flatnonzero(np.concatenate([[True], new]))
    counts = np.diff(first, append=values.size)
    rank[order] = np.repeat(first + 1 + (counts - 1) / 2, counts)
    return rank


def _pairs(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x = np.asarray(first, dtype=np.float64)
    y = np.asarray(second, dtype=np.float64)
    paired = np.isfinite(x) & np.isfinite(y)
    return x[paired], y[paired]


@np.errstate(over="ignore", invalid="ignore")
def _correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    if x.size < FEWEST_PARTICIPANTS or _constant(x) or _constant(y):
        return nan
    # Scaled to at most 1 first: squares of tiny drifts would otherwise underflow to 0/0.
    x = (x - x.mean()) / _range(x)
    y = (y - y.mean()) / _range(y)
    squares = float(x @ x) * float(y @ y)
    # Beyond the largest float, squares are 0 or NaN; `min` and `max` keep a NaN that comes first.
    return max(min(float(x @ y) / sqrt(squares), 1.0), -1.0) if squares else nan


def _constant(values: NDArray[np.float64]) -> bool:
    return _range(values) <= CONSTANT * float(np.abs(values).max())


def _range(values: NDArray[np.float64]) -> float:
    return float(values.max() - values.min())
