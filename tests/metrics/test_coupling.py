from math import isnan, nan

import numpy as np
import pytest
from pytest import approx
from scipy import stats

from fedwatt.metrics import pearson, spearman
from fedwatt.randomness import generator

EIGHT = np.arange(8.0)


@pytest.mark.parametrize("participants", [8, 9, 30, 200])
@pytest.mark.parametrize("levels", [3, 1000])
def test_agrees_with_scipy(participants, levels):
    draw = generator(0, "coupling", participants, levels)
    x = draw.integers(levels, size=participants) / 7.0
    y = x * draw.normal() + draw.normal(size=participants).round(1)
    assert pearson(x, y) == approx(stats.pearsonr(x, y).statistic, abs=1e-12)
    assert spearman(x, y) == approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_sign_and_shape():
    assert pearson(EIGHT, -3 * EIGHT + 1) == approx(-1.0)
    assert spearman(EIGHT, np.exp(EIGHT)) == approx(1.0)
    assert pearson(EIGHT, np.exp(EIGHT)) < 0.9


def test_tiny_drifts_do_not_underflow():
    assert pearson(EIGHT, EIGHT * 1e-200) == approx(1.0)


def test_what_overflows_is_nan():
    nine = [1e308] * 7 + [1e307, 9e307]
    alternating = [1.7e308, -1.7e308] * 4
    assert isnan(pearson(nine, range(9)))  # their mean is infinite
    assert isnan(pearson(alternating, range(8)))  # their range is
    assert isnan(pearson(range(8), alternating))


@pytest.mark.parametrize("correlation", [pearson, spearman])
def test_undefined_is_nan(correlation):
    assert isnan(correlation(EIGHT[:7], EIGHT[:7]))
    assert isnan(correlation(np.zeros(8), EIGHT))
    assert isnan(correlation(EIGHT, np.full(8, 0.3)))
    assert isnan(correlation([], []))


@pytest.mark.parametrize("correlation", [pearson, spearman])
def test_vehicles_without_roughness_are_left_out(correlation):
    reference = np.append(EIGHT, 100.0), np.append(-EIGHT, 0.0)
    gap = np.append(EIGHT, nan), np.append(-EIGHT, 0.0)
    assert correlation(*gap) == approx(-1.0)
    assert correlation(*reference) > correlation(*gap)
    # Seven known pairs are too few, however many vehicles took part.
    assert isnan(correlation([nan, *EIGHT[1:]], EIGHT))


def test_rounding_is_not_a_difference():
    almost = 0.1 * (1 + 1e-15 * EIGHT)
    assert almost.max() > almost.min()
    assert isnan(pearson(almost, EIGHT))
