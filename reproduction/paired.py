"""Comparisons at equal seeds: the same initial model, participants and batches on both sides.

A seed that diverged has no error to compare. To leave it out would favour whoever diverged, so the
side with diverged seeds has lost the comparison, whatever the other seeds say; with such seeds on
both sides nobody has won.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt
from typing import Final

import numpy as np
from scipy.special import nctdtrinc, stdtr, stdtrit

from fedwatt.report.statistics import Estimate, estimate
from fedwatt.report.table import cell_text

LEVEL: Final = 0.05
"""A difference counts if its p, corrected, is below this."""


@dataclass(frozen=True)
class Paired:
    """One side minus the other, seed by seed."""

    difference: Estimate
    p: float
    """Of Student's paired t-test, two-sided; NaN with fewer than two seeds, or diverged ones.
    Equal differences in all n seeds have no spread: then 2^(1-n), the chance of equal signs."""
    first_lost: tuple[int, ...] = ()
    """Seeds in which the one side diverged."""
    second_lost: tuple[int, ...] = ()
    """Seeds in which the other did."""

    @property
    def decided(self) -> bool:
        """Return whether a diverged seed decides it."""
        return bool(self.first_lost or self.second_lost)

    @property
    def ran(self) -> bool:
        """Return whether there is anything to test: two seeds, or one that diverged."""
        return self.difference.seeds > 1 or self.decided

    def below(self, p: float, level: float) -> bool:
        """Return whether the one side is lower: the other diverged, or p (corrected) says so."""
        if self.decided:
            return not self.first_lost
        return p < level and self.difference.mean < 0

    def above(self, p: float, level: float) -> bool:
        """Return whether it is higher: it diverged alone, or p (corrected) says so."""
        if self.decided:
            return not self.second_lost
        return p < level and self.difference.mean > 0

    def losses(self, first: str, second: str) -> str:
        """Return who diverged in which seeds, in words; empty if nobody did."""
        parts = [
            f"{name} diverged in {'seed' if len(lost) == 1 else 'seeds'} "
            + ", ".join(map(str, lost))
            for name, lost in ((first, self.first_lost), (second, self.second_lost))
            if lost
        ]
        return " and ".join(parts)


def paired(
    first: Mapping[int, float],
    second: Mapping[int, float],
    first_lost: Iterable[int] = (),
    second_lost: Iterable[int] = (),
) -> Paired:
    """Return `own` minus `other` over the seeds of both; the lost seeds diverged.

    >>> found = paired({1: 3.0, 2: 5.0, 3: 4.0}, {1: 2.0, 2: 3.0, 3: 1.0})
    >>> found.difference.mean, round(found.p, 6)  # t = 2 / (1/√3) with two degrees of freedom
    (2.0, 0.07418)
    """
    seeds = [seed for seed in first if seed in second]
    values = np.array([first[seed] - second[seed] for seed in seeds])
    difference = estimate(values.tolist())
    lost = (tuple(first_lost), tuple(second_lost))
    if any(lost):
        return Paired(difference, nan, *lost)
    if difference.seeds < 2:
        return Paired(difference, nan)
    if difference.std == 0:
        return Paired(difference, 1.0 if difference.mean == 0 else 2.0 ** (1 - difference.seeds))
    t = abs(difference.mean) / (difference.std / sqrt(difference.seeds))
    return Paired(difference, float(2 * stdtr(difference.seeds - 1, -t)))


def detectable(difference: Estimate, comparisons: int = 1) -> float:
    """Return the smallest effect that the paired test would have found in four of five repetitions.

    δ·s/√n, where a noncentral t of n - 1 degrees of freedom and noncentrality δ exceeds the
    critical t at 5 % over the number of comparisons, Holm's first step, with probability 0.8; NaN
    with fewer than two seeds.

    >>> round(detectable(estimate([1.0, 2.0, 3.0])), 2)  # critical t 4.303, δ = 5.653
    3.26
    >>> round(detectable(estimate([1.0, 2.0, 3.0]), 4), 2)  # critical t 8.860, δ = 11.338
    6.55
    """
    if difference.seeds < 2:
        return nan
    freedom = difference.seeds - 1
    critical = stdtrit(freedom, 1 - LEVEL / max(comparisons, 1) / 2)
    return float(nctdtrinc(freedom, 0.2, critical) * difference.std / sqrt(difference.seeds))


def holm(ps: Sequence[float]) -> list[float]:
    """Return Holm's correction: p-values that hold for all of them at once.

    One that divergence decided has no p (NaN). It stays so, and counts as a comparison.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    >>> holm([0.01, nan, 0.03])
    [0.03, nan, 0.06]
    """
    ordered = sorted((p, i) for i, p in enumerate(ps) if not isnan(p))
    adjusted = [nan] * len(ps)
    highest = 0.0
    for rank, (p, i) in enumerate(ordered):
        highest = max(highest, min(1.0, (len(ps) - rank) * p))
        adjusted[i] = highest
    return adjusted


def lower_ones(tests: Mapping[str, Paired]) -> dict[str, bool]:
    """Return which comparisons the one side wins."""
    corrected = holm([test.p for test in tests.values()])
    return {n: t.below(p, LEVEL) for (n, t), p in zip(tests.items(), corrected, strict=True)}


def higher_ones(tests: Mapping[str, Paired]) -> dict[str, bool]:
    """Return which comparisons it loses."""
    corrected = holm([test.p for test in tests.values()])
    return {n: t.above(p, LEVEL) for (n, t), p in zip(tests.items(), corrected, strict=True)}


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
        return cell_text(difference.mean, digits) + unit
    mean, low, high = (
        cell_text(value, digits) for value in (difference.mean, difference.low, difference.high)
    )
    return f"{mean} [{low}, {high}]{unit}"
