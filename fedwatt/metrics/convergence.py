"""How soon a method gets good, and how good it was by then.

Paper, section "Convergence and communication-efficiency metrics", `eq:rounds_to_threshold`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan


@dataclass(frozen=True)
class Best:
    """The checkpoint that validation would have chosen up to a round."""

    round: int = -1
    """-1 before anything was evaluated"""
    validation: float = inf
    test: float = nan


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


def best_so_far(
    rounds: Sequence[int], validation: Sequence[float], test: Sequence[float]
) -> list[Best]:
    """For every round, the best-validated model up to it and that model's test score.

    Of equal validation scores the earlier round stays. Rounds without one (NaN) change nothing.

    >>> best_so_far([0, 1, 2], [9.0, 5.0, 7.0], [8.0, 6.0, 4.0])[-1]
    Best(round=1, validation=5.0, test=6.0)
    """
    best = Best()
    history = []
    for at, score, tested in zip(rounds, validation, test, strict=True):
        if score < best.validation:
            best = Best(at, score, tested)
        history.append(best)
    return history
