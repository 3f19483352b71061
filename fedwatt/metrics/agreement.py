"""Do the vehicles of a round pull the same way, and is one of them out of line?

    A_t = (E₂/E₁ - Σ p_k²) / (1 - Σ p_k²),     E₁ = Σ p_k ‖Δ_k‖²,     E₂ = ‖Σ p_k Δ_k‖²

is the mean cosine between two replies where lengths and weights are equal: 1 alike, 0 orthogonal,
below 0 in conflict. A reply's length is held against the others' by the logarithm of its ratio to
their median, in robust standard deviations. Both say something about a round; neither is a thing
that a pull can control.
"""

from math import nan
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

TOO_LONG: Final = 3.0
"""Robust standard deviations above the median at which a reply's length is flagged."""
AGAINST = -0.3
TURNS = 3
"""A vehicle works against the fleet if its alignment is below the one in so many turns running."""
FEWEST: Final = 4
"""Replies among which one can be out of line."""
TO_DEVIATION: Final = 1.4826
"""A normal spread's standard deviation over its median absolute deviation."""
LEAST_SPREAD: Final = float(np.log(1.05))
"""Replies whose lengths agree to 5 % are not told apart by them."""


def agreement(shares: ArrayLike, lengths: ArrayLike, mean_length: float) -> float:
    """A_t of weights p_k [R], ‖Δ_k‖ [R] and ‖Σ p_k Δ_k‖; NaN where one reply is all there is.

    >>> agreement([0.5, 0.5], [1.0, 1.0], 1.0), agreement([0.5, 0.5], [1.0, 1.0], 0.0)
    (1.0, -1.0)
    >>> round(agreement([0.5, 0.5], [3.0, 4.0], 2.5), 9)  # orthogonal: ‖(1.5, 2)‖
    0.0
    """
    p = np.asarray(shares, dtype=np.float64)
    norms = np.asarray(lengths, dtype=np.float64)
    together = float(p @ norms**2)
    alone = float(p @ p)
    if not together > 0 or alone > 1 - 1e-12:
        return nan
    return (mean_length**2 / together - alone) / (1 - alone)


def out_of_line(lengths: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(Length over the median, robust z of its logarithm), each [R]; NaN with too few replies.

    >>> ratio, z = out_of_line([1.0, 2.0, 2.0, 4.0, 64.0])
    >>> ratio.tolist(), z.round(3).tolist()  # the median absolute deviation is ln 2
    ([0.5, 1.0, 1.0, 2.0, 32.0], [-0.674, 0.0, 0.0, 0.674, 3.372])
    """
    norms = np.asarray(lengths, dtype=np.float64)
    valid = np.isfinite(norms) & (norms > 0)
    ratio, z = np.full((2, norms.size), nan)
    if valid.sum() < FEWEST:
        return ratio, z
    ratio[valid] = norms[valid] / _median(norms[valid])
    logs = np.log(ratio[valid])
    centred = logs - _median(logs)
    spread = max(_median(np.abs(centred)), LEAST_SPREAD)
    z[valid] = centred / (TO_DEVIATION * spread)
    return ratio, z


def _median(values: NDArray[np.float64]) -> float:
    """Return the median, ten times as fast as NumPy's for the updates of one round."""
    ordered = np.sort(values)
    middle = values.size // 2
    if values.size % 2:
        return float(ordered[middle])
    return float((ordered[middle - 1] + ordered[middle]) / 2)
