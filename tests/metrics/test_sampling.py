from math import sqrt

import numpy as np
import pytest

from fedwatt.metrics import ErrorSums
from fedwatt.metrics.errors import rmse_margin


def sums(windows: int, squared: float) -> ErrorSums:
    return ErrorSums(windows=windows, squared_wh2=squared)


def test_two_vehicles_by_hand():
    # MSE 5 of 2 windows; deviations ±3; s² = (1 - 2/10)/2 · 18/1 / 1² = 7.2; t(1) is 12.706.
    margin = rmse_margin([sums(1, 2.0), sums(1, 8.0)], 10)
    assert margin == pytest.approx(12.7062 * sqrt(7.2) / (2 * sqrt(5)))


def test_all_vehicles_have_no_margin_and_one_has_an_unknown_one():
    assert rmse_margin([sums(1, 2.0), sums(1, 8.0)], 2) == 0.0
    assert np.isnan(rmse_margin([sums(1, 2.0)], 10))
    assert np.isnan(rmse_margin([sums(1, 2.0), sums(0, 0.0)], 10))


def test_errors_without_bounds_have_no_margin():
    assert np.isnan(rmse_margin([sums(1, 2.0), sums(1, np.inf)], 10))
    assert rmse_margin([sums(1, 2.0), sums(1, 1e200)], 10) == np.inf


def test_the_interval_holds_the_error_of_all_vehicles_as_often_as_it_says():
    rng = np.random.default_rng(1)
    windows = rng.integers(20, 80, 20_000)
    # Skewed, as vehicles' errors are: a few have several times the usual one.
    squared = windows * 2500 * np.exp(rng.normal(0, 0.8, len(windows)))
    truth = sqrt(squared.sum() / windows.sum())
    held = 0
    for _ in range(400):
        some = rng.choice(len(windows), 200, replace=False)
        sample = [sums(int(windows[k]), float(squared[k])) for k in some]
        rmse = sqrt(squared[some].sum() / windows[some].sum())
        held += abs(rmse - truth) <= rmse_margin(sample, len(windows))
    assert 0.90 <= held / 400 <= 0.98  # 95 %, less a little for the skew, ± 2 % of chance
