"""Differences of seeds, with their correction and with seeds that diverged."""

from math import isnan

import pytest

from reproduction.paired import holm, paired


def test_paired_differences_and_their_correction() -> None:
    same = paired({1: 2.0, 2: 3.0}, {1: 2.0, 2: 3.0})
    assert (same.difference.mean, same.p) == (0.0, 1.0)
    assert isnan(paired({1: 2.0}, {1: 1.0}).p)
    # Differences 0 and 2: t = 1/(√2/√2) = 1 with one degree of freedom, p = 1 - (2/π)·atan(1)
    p = paired({1: 2.0, 2: 2.0}, {1: 2.0, 2: 0.0}).p
    assert p == pytest.approx(0.5, abs=1e-9)
    # Equal differences have no spread; three equal signs come by chance in one case of four.
    assert paired({1: 20, 2: 25, 3: 20}, {1: 25, 2: 30, 3: 25}).p == 0.25
    corrected = holm([0.5, float("nan"), 0.02])
    assert corrected == [1.0, pytest.approx(float("nan"), nan_ok=True), 0.06]


def test_a_comparison_is_lost_by_the_side_that_diverged() -> None:
    low = {1: 1.0, 2: 1.1, 3: 1.2}
    high = {1: 2.0, 2: 2.1, 3: 2.25}
    plain_test = paired(low, high)
    assert plain_test.below(plain_test.p, 0.05) and not plain_test.above(plain_test.p, 0.05)
    lost = paired({1: 1.0, 2: 1.1}, high, first_lost=[3])
    assert isnan(lost.p) and not lost.below(lost.p, 0.05) and lost.above(lost.p, 0.05)
    won = paired(high, {1: 1.0, 2: 1.1}, second_lost=[3])
    assert won.below(won.p, 0.05) and not won.above(won.p, 0.05)
    both = paired({1: 1.0}, {2: 1.0}, [2, 3], [1])
    assert not both.below(both.p, 0.05) and not both.above(both.p, 0.05)
    assert both.losses("A", "B") == "A diverged in seeds 2, 3 and B diverged in seed 1"
