"""Speed and steadiness with which an error falls, as claim C2 compares them."""

from math import isfinite, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedwatt.report.statistics import estimate
from fedwatt.report.table import shown
from reproduction.by_round import rounds_to
from reproduction.paired import Paired, paired
from reproduction.record import REACH, Record

NEAR: Final = 1.10
"""Speed is the rounds to this multiple of the lower one of two final errors."""

STABLE: Final = 0.05
"""Share of the final error within which a curve counts as stable."""


def steadiness(record: Record) -> dict[int, float]:
    """Return how much a seed's test RMSE jitters over the last third of its evaluations, Wh.

    The standard deviation of successive differences over √2: that of noise about a level, and a
    curve that still falls evenly has none.

    >>> jitter(np.array([5.0, 4.0, 3.0, 2.0]))
    0.0
    """
    jitters = {}
    for seed in record.seeds:
        rounds, values = record.curve("test_rmse", seed)
        late = values[rounds > 2 * rounds.max(initial=0) / 3]
        if late.size and seed not in record.diverged:
            jitters[seed] = jitter(late)
    return jitters


def jitter(values: NDArray[np.float64]) -> float:
    """Return the standard deviation of successive differences over √2, or 0 below three values."""
    return float(np.diff(values).std() / sqrt(2)) if values.size > 2 else 0.0


def speed(record: Record, target: float, rounds: int) -> dict[int, float]:
    """Return per seed the rounds to the target; T + 1 where it is never reached."""
    reached = rounds_to(record, target)
    return {
        s: r if isfinite(r) else rounds + 1.0 for s, r in reached.items() if s in finals(record)
    }


def rounds_to_stability(record: Record) -> dict[int, float]:
    """Return per seed the first evaluated round from which the error stays near its final value.

    Near is within `STABLE` of the final test RMSE. The paper names the quantity and defines none.
    """
    rounds = {}
    for seed in finals(record):
        at, errors = record.curve("test_rmse", seed)
        away = np.flatnonzero(np.abs(errors / errors[-1] - 1) > STABLE)
        rounds[seed] = float(at[away[-1] + 1]) if away.size else float(at[0])
    return rounds


def update_variance(record: Record, round: int) -> dict[int, float]:
    """Return per seed the variance of ‖Δ_k‖ over the participants of a round, (D_mean · D_cv)².

    It is the mean over the rounds within `REACH`. The paper names the quantity and defines none.
    """
    variance = {}
    for seed in finals(record):
        rows = record.rounds["seed"] == seed
        rows &= np.abs(record.rounds["round"] - round) <= REACH
        spread = record.rounds["drift_mean"][rows] * record.rounds["drift_cv"][rows]
        variance[seed] = float(np.nanmean(spread.astype(np.float64) ** 2))
    return variance


def convergence(record: Record, other: Record, rounds: int) -> dict[str, Paired]:
    """Return differences of rounds to near the lower error, of unsteadiness and of final error."""
    levels = [np.mean(list(finals(r).values())) for r in (record, other) if finals(r)]
    target = NEAR * float(min(levels)) if levels else 0.0
    lost = (record.diverged, other.diverged)
    return {
        "rounds": paired(speed(record, target, rounds), speed(other, target, rounds), *lost),
        "steadiness": paired(steadiness(record), steadiness(other), *lost),
        "error": against(record, other),
    }


def finals(record: Record) -> dict[int, float]:
    """Return final test RMSE of every seed that stayed finite, Wh."""
    return record.final("test_rmse")


def against(record: Record, other: Record) -> Paired:
    """Return final errors of one training minus another's, seed by seed."""
    return paired(finals(record), finals(other), record.diverged, other.diverged)


def level(record: Record) -> float:
    """Return mean final test RMSE of the seeds that did not diverge, Wh; NaN if all did."""
    return estimate(list(finals(record).values())).mean


def divergence(name: str, record: Record) -> str:
    """Return which seeds diverged, and when."""
    cases = ", ".join(f"seed {seed} by round {at}" for seed, at in record.diverged.items())
    return f"{name} diverged ({cases})"


def level_text(record: Record) -> str:
    """Return the same in words, with a word on seeds that diverged."""
    lost = len(record.diverged)
    left = level(record)
    if not lost:
        return f"{shown(left, 2)} Wh"
    if not isfinite(left):
        return "nothing finite"
    return f"{shown(left, 2)} Wh in the seeds that did not diverge ({lost} did)"
