"""What counts as lower or higher where a claim makes several comparisons at once."""

from math import nan

import pytest

from fedwatt.report.statistics import estimate
from reproduction.judges import higher_ones, lower_ones
from reproduction.paired import Paired


def comparisons(sign: int, *ps: float) -> dict[str, Paired]:
    """Comparisons of three seeds with these p-values, all with differences of one sign."""
    difference = estimate([sign * 1.0, sign * 2.0, sign * 3.0])
    return {f"test {place}": Paired(difference, p) for place, p in enumerate(ps)}


@pytest.mark.parametrize(
    ("ps", "expected"),
    [
        ((0.04,), [True]),
        ((0.03, 0.04), [False, False]),  # Holm: 2 · 0.03 = 0.06 for both
        ((0.02, 0.04), [True, True]),  # 2 · 0.02 = 0.04, then 1 · 0.04
        ((0.04, 0.01, 0.03), [False, True, False]),  # 3 · 0.01, then 2 · 0.03 = 0.06 for the rest
    ],
)
def test_several_comparisons_are_corrected(ps: tuple[float, ...], expected: list[bool]) -> None:
    below, above = comparisons(-1, *ps), comparisons(1, *ps)
    assert list(lower_ones(below).values()) == list(higher_ones(above).values()) == expected
    assert not any(lower_ones(above).values()) and not any(higher_ones(below).values())


def test_a_comparison_that_divergence_decided_counts_among_the_others() -> None:
    decided = Paired(estimate([]), nan, own_lost=(), other_lost=(2,))
    assert lower_ones({"decided": decided, **comparisons(-1, 0.03)}) == {
        "decided": True,
        "test 0": False,
    }
