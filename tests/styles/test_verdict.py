"""One cloud is one cloud, two are two, and groupings are compared as by hand."""

import numpy as np
import pytest

from examples.driving_styles.verdict import Excess, adjusted_rand, excess, explained


def evaluated(points: np.ndarray) -> tuple[Excess, np.ndarray]:
    points = points - points.mean(axis=0)
    rng = np.random.default_rng(1)
    spread = points.std(axis=0)
    explanation = explained(points, spread, 3, rng, fewest=3)
    return excess(explanation, len(points), spread, rng, fewest=3), explanation.shares


def test_two_clouds_are_more_than_chance() -> None:
    draw = np.random.default_rng(0)
    side = np.repeat([-4.0, 4.0], 12)
    points = np.stack([side + draw.normal(size=24), draw.normal(size=24)], axis=1)
    result, shares = evaluated(points)
    assert result.above.argmax() == 0  # two clusters, not three
    assert result.probability == 0.01  # none of 99 draws
    assert 0.85 < shares[0] <= shares[1]


def test_one_cloud_is_not() -> None:
    draws = np.random.default_rng(2)
    chances = [evaluated(draws.normal(size=(24, 2)) * [3, 1])[0].probability for _ in range(2)]
    assert min(chances) > 0.05
    # Flat is as far as one group goes: against a Gaussian it would pass for two.
    even = np.stack([np.linspace(-3, 3, 60), draws.uniform(-1, 1, 60)], axis=1)
    assert evaluated(even)[0].probability > 0.05


def test_adjusted_rand_index_by_hand() -> None:
    values = np.array([0, 0, 0, 1, 1, 1])
    other = np.array([0, 0, 1, 1, 1, 1])
    # Pairs together in both: 1 + 3 = 4; in one 6, in the other 1 + 6 = 7, of 15.
    assert adjusted_rand(values, other) == pytest.approx((4 - 42 / 15) / (6.5 - 42 / 15))
    assert adjusted_rand(values, values[::-1]) == 1.0
    assert adjusted_rand(np.zeros(4, int), np.zeros(4, int)) == 1.0
