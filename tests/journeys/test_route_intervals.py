import numpy as np
import pytest

from fedwatt.journeys.route_intervals import (
    BINS,
    LEVELS,
    Bars,
    error_counts,
    interval,
    length_class,
    quantiles,
    relative_errors,
    vehicle_size,
)

A_ROUTE = np.ones((1, 1))
UNSEEN = (np.eye(1), np.ones(1))
"""Covariance and prior of a vehicle without trips: no variance is removed."""


def alike(table, noise=10.0):
    """Return bars with the same table on any ground and for any vehicle."""
    return Bars(table, table, table, np.array(noise), *UNSEEN)


def test_counts_fall_into_their_class_of_length_and_add_up():
    np.testing.assert_array_equal(
        length_class(np.array([1.0, 3.99, 4.0, 7.9, 8.0, 90.0])), [0, 0, 1, 1, 2, 2]
    )
    counts = error_counts(np.array([0.0, 0.0, 1e9]), np.array([1.0, 5.0, 5.0]))
    assert counts.reshape(3, BINS).sum(axis=1).tolist() == [1, 2, 0]
    assert counts[2 * BINS - 1] == 1


def test_quantiles_of_many_errors_are_those_of_their_distribution():
    errors = np.random.default_rng(0).normal(scale=0.1, size=200_000)
    counts = error_counts(errors, np.full(len(errors), 5.0))
    table = quantiles(counts)
    low, high = interval(table[1], 0.9)
    assert low == pytest.approx(-0.1645, abs=0.006)
    assert high == pytest.approx(0.1645, abs=0.006)
    # Nobody drove the other classes: they take these errors, as if they were of 30 trips, which
    # leave room for half a trip in 31 at each end: 0.95 + 0.5 / 31 is at 1.826 deviations.
    assert interval(table[0], 0.9) == pytest.approx((-0.1826, 0.1826), abs=0.006)


def test_a_class_of_few_trips_takes_the_others_errors_for_those_it_lacks():
    errors = np.r_[np.zeros(10), np.full(40, 0.3)]
    counts = error_counts(errors, np.r_[np.full(10, 2.0), np.full(40, 6.0)])
    table = quantiles(counts)
    # 10 of its own and 20 of theirs: a third of its errors are 0.3 below its middle.
    assert np.mean(table[0] < -0.15) == pytest.approx(1 / 3, abs=0.02)
    assert np.ptp(table[1]) < 0.02


def test_few_errors_have_the_bars_of_their_outermost_and_no_wider():
    counts = error_counts(np.linspace(-0.2, 0.3, 6), np.full(6, 6.0))
    low, high = interval(quantiles(counts)[1], 0.9)
    assert high - low == pytest.approx(0.5, abs=0.02)


def test_bars_cover_new_errors_as_often_as_they_say():
    rng = np.random.default_rng(1)
    # 1,850 Wh were predicted and b is 10 Wh, so an error is measured in 1,850 + 150 Wh.
    true = 1850 + 2000 * rng.laplace(scale=0.1, size=3000)
    predicted = np.full(3000, 1850.0)
    counts = error_counts(relative_errors(true, predicted, 10.0), np.full(3000, 10.0))
    table = quantiles(counts)
    errors_wh = alike(table).errors(np.array([20_000.0]), np.array([3850.0]), A_ROUTE, 0.0)
    low, high = interval(errors_wh[0], 0.9)
    errors = 4000 * rng.laplace(scale=0.1, size=5000)
    assert np.mean((low <= errors) & (errors <= high)) == pytest.approx(0.9, abs=0.015)


def test_a_way_that_is_to_take_nothing_has_bars_all_the_same():
    table = np.tile(LEVELS - 0.5, (3, 1))
    predicted = np.array([0.0, -400.0])
    interval_errors = alike(table).errors(np.full(2, 3000.0), predicted, np.zeros((2, 1)), 0.0)
    np.testing.assert_allclose(interval_errors, 150 * (LEVELS - 0.5) * np.ones((2, 1)))


def test_unknown_ground_never_narrows_the_bars():
    narrow, wide = (width * np.tile(LEVELS - 0.5, (3, 1)) for width in (1.0, 4.0))
    b = np.array(10.0)
    way = np.array([3000.0])
    energy = np.array([500.0])
    bars = Bars(narrow, narrow, wide, b, *UNSEEN)
    half, none = (bars.errors(way, energy, A_ROUTE, share)[0] for share in (0.5, 0.0))
    assert half[-1] - half[0] == pytest.approx(2.5 * (none[-1] - none[0]))
    other = Bars(narrow, wide, narrow, b, *UNSEEN)
    np.testing.assert_allclose(
        other.errors(way, energy, A_ROUTE, 1.0), other.errors(way, energy, A_ROUTE, 0.0)
    )
    assert other.wider == pytest.approx(4)


def test_intervals_pass_from_an_unseen_vehicles_to_the_vehicles_own_as_its_trips_tell():
    narrow, wide = (width * np.tile(LEVELS - 0.5, (3, 1)) for width in (1.0, 4.0))
    # Trips in the cold removed 0.96 of the first coefficient's variance and half of the second's.
    bars = Bars(narrow, wide, narrow, np.array(10.0), np.diag([0.04, 2.0]), np.array([1.0, 4.0]))
    x = np.array([[3.0, 0.0], [0.0, 3.0], [2.0, 1.0], [0.0, 0.0]])
    # The third route: 1 - (4 · 0.04 + 2) / (4 · 1 + 4). Of a route of no length nothing is known.
    np.testing.assert_allclose(bars.resolved(x), [0.96, 0.5, 0.73, 0.0])
    errors = bars.errors(np.full(4, 5000.0), np.full(4, 850.0), x, 0.0)
    widths = np.ptp(errors, axis=1) / (1000 * 0.98)
    np.testing.assert_allclose(widths, [0.96 + 0.04 * 4, 2.5, 0.73 + 0.27 * 4, 4.0])


def test_a_vehicles_size_widens_its_intervals():
    # 95 own trips, twice as far off as usual: (5 · 0.12 + 95 · 0.24) / (100 · 0.12).
    assert vehicle_size(np.full(95, 0.24)) == pytest.approx(1.95)
