"""How fast and how steadily an error falls: what claim C2 compares."""

from math import isfinite, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reproduction.by_round import rounds_to
from reproduction.paired import Paired, paired
from reproduction.record import Record

NEAR: Final = 1.10
"""Speed is the rounds to this multiple of the lower one of two final errors."""


def steadiness(record: Record) -> dict[int, float]:
    """How much a seed's test RMSE jitters over the last third of its evaluations, Wh.

    The standard deviation of successive differences over √2: that of noise about a level, and a
    curve that still falls evenly has none.

    >>> jitter(np.array([5.0, 4.0, 3.0, 2.0]))
    0.0
    """
    found = {}
    for seed in record.seeds:
        rounds, values = record.curve("test_rmse", seed)
        late = values[rounds > 2 * rounds.max(initial=0) / 3]
        if late.size and seed not in record.diverged:
            found[seed] = jitter(late)
    return found


def jitter(values: NDArray[np.float64]) -> float:
    """Standard deviation of successive differences, over √2; 0 of fewer than three values."""
    return float(np.diff(values).std() / sqrt(2)) if values.size > 2 else 0.0


def speed(record: Record, target: float, rounds: int) -> dict[int, float]:
    """Rounds to the target, of seeds that did not diverge; one never reached counts as T + 1."""
    found = rounds_to(record, target)
    return {s: r if isfinite(r) else rounds + 1.0 for s, r in found.items() if s in finals(record)}


def convergence(own: Record, other: Record, rounds: int) -> dict[str, Paired]:
    """Rounds to 10 % above the lower final error, unsteadiness, and final error; own − other."""
    levels = [np.mean(list(finals(r).values())) for r in (own, other) if finals(r)]
    target = NEAR * float(min(levels)) if levels else 0.0
    lost = (own.diverged, other.diverged)
    return {
        "rounds": paired(speed(own, target, rounds), speed(other, target, rounds), *lost),
        "steadiness": paired(steadiness(own), steadiness(other), *lost),
        "error": against(own, other),
    }


def finals(record: Record) -> dict[int, float]:
    """Final test RMSE of every seed that stayed finite, Wh."""
    return record.final("test_rmse")


def against(own: Record, other: Record) -> Paired:
    """Final errors of one training minus another's, seed by seed."""
    return paired(finals(own), finals(other), own.diverged, other.diverged)
