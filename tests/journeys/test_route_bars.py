import numpy as np
import pytest

from fedwatt.journeys.route_bars import (
    BINS,
    LEVELS,
    Bars,
    crps,
    error_counts,
    interval,
    length_class,
    quantiles,
)


def test_counts_fall_into_their_class_of_length_and_add_up():
    np.testing.assert_array_equal(
        length_class(np.array([1.0, 3.99, 4.0, 7.9, 8.0, 90.0])), [0, 0, 1, 1, 2, 2]
    )
    counts = error_counts(np.array([0.0, 0.0, 1e9]), np.array([1.0, 5.0, 5.0]), noise=1.0)
    assert counts.reshape(3, BINS).sum(axis=1).tolist() == [1, 2, 0]
    assert counts[2 * BINS - 1] == 1


def test_quantiles_of_many_errors_are_those_of_their_distribution():
    errors = np.random.default_rng(0).normal(size=200_000)
    counts = error_counts(errors, np.full(len(errors), 5.0), noise=1.0)
    table = quantiles(counts, np.zeros_like(counts), noise=1.0)
    low, high = interval(table[1], 0.9)
    assert low == pytest.approx(-1.645, abs=0.06)
    assert high == pytest.approx(1.645, abs=0.06)
    # Nobody drove the other classes: they take these errors.
    np.testing.assert_allclose(table[0], table[1])


def test_bars_cover_new_errors_as_often_as_they_say():
    rng = np.random.default_rng(1)
    counts = error_counts(rng.laplace(size=3000), np.full(3000, 10.0), noise=1.0)
    table = quantiles(counts, np.zeros_like(counts), noise=1.0)
    bars = Bars(table, table, table)
    low, high = interval(bars.errors(np.array([20_000.0]), 0.0)[0], 0.9)
    errors = rng.laplace(size=5000) * 22  # σ of 20 km
    assert np.mean((low <= errors) & (errors <= high)) == pytest.approx(0.9, abs=0.015)


def test_unknown_ground_never_narrows_the_bars():
    narrow, wide = (width * np.tile(LEVELS - 0.5, (3, 1)) for width in (1.0, 4.0))
    bars = Bars(narrow, narrow, wide)
    half, none = (bars.errors(np.array([3000.0]), share)[0] for share in (0.5, 0.0))
    assert half[-1] - half[0] == pytest.approx(2.5 * (none[-1] - none[0]))
    other = Bars(wide, narrow, narrow)
    np.testing.assert_allclose(
        other.errors(np.array([3000.0]), 1.0), other.errors(np.array([3000.0]), 0.0)
    )
    assert other.wider == pytest.approx(4)


def test_the_score_rewards_a_sharp_and_right_prediction():
    sharp, vague = 100 + 10 * (LEVELS - 0.5), 100 + 100 * (LEVELS - 0.5)
    assert crps(sharp, 100) < crps(vague, 100) < crps(sharp, 200)
