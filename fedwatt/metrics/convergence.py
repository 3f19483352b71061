"""Rounds until a method reaches an error threshold.

Paper, section "Convergence and communication-efficiency metrics", `eq:rounds_to_threshold`.
"""

from collections.abc import Sequence
from math import inf


def rounds_to_threshold(rounds: Sequence[int], scores: Sequence[float], threshold: float) -> float:
    """First round whose score is at most `threshold`; infinite if there is none.

    Rounds that were not evaluated (NaN) are passed over.

    >>> rounds_to_threshold([0, 1, 2, 3], [90.0, float("nan"), 60.0, 55.0], 60.0)
    2
    >>> rounds_to_threshold([0, 1], [90.0, 80.0], 60.0)
    inf
    """
    reached = [r for r, score in zip(rounds, scores, strict=True) if score <= threshold]
    return min(reached, default=inf)
