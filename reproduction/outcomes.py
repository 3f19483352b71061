"""Outcomes of comparisons: lower or higher, at which error, as values and as text."""

from collections.abc import Mapping
from math import isfinite

from fedwatt.report.statistics import estimate
from fedwatt.report.table import shown
from reproduction.convergence import finals
from reproduction.paired import LEVEL, Paired, holm
from reproduction.record import Record


def lower_ones(tests: Mapping[str, Paired]) -> dict[str, bool]:
    """Return which comparisons the one side wins."""
    corrected = holm([test.p for test in tests.values()])
    return {n: t.below(p, LEVEL) for (n, t), p in zip(tests.items(), corrected, strict=True)}


def higher_ones(tests: Mapping[str, Paired]) -> dict[str, bool]:
    """Return which comparisons it loses."""
    corrected = holm([test.p for test in tests.values()])
    return {n: t.above(p, LEVEL) for (n, t), p in zip(tests.items(), corrected, strict=True)}


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


def gap_text(
    test: Paired, first: str = "", second: str = "", unit: str = "", digits: int = 2
) -> str:
    """Return a difference with its interval, or who diverged."""
    difference = test.difference
    if test.decided:
        return test.losses(first, second)
    if not difference.seeds:
        return "no seed that both finished"
    if difference.seeds < 2 or difference.copies:
        return shown(difference.mean, digits) + unit
    mean, low, high = (
        shown(value, digits) for value in (difference.mean, difference.low, difference.high)
    )
    return f"{mean} [{low}, {high}]{unit}"
