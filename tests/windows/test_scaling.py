"""Centre and scale, by hand."""

import numpy as np
import pytest

from fedwatt.windows.scaling import NORMAL_IQR, SCALINGS, about_zero, robust, zscore


def test_zscore_by_hand():
    scaler = zscore(np.array([[1.0, -2.0], [3.0, 4.0], [5.0, 1.0]]))
    assert scaler.center.tolist() == [3.0, 1.0]
    assert scaler.scale == pytest.approx([np.sqrt(8 / 3), np.sqrt(6)])
    assert scaler.forward(np.array([3.0, 1.0 + np.sqrt(6)])) == pytest.approx([0.0, 1.0])


def test_robust_ignores_an_outlier():
    scaler = robust(np.array([0.0, 1.0, 2.0, 3.0, 1000.0])[:, None])
    assert scaler.center.tolist() == [2.0]
    assert scaler.scale == pytest.approx([(3.0 - 1.0) / NORMAL_IQR])


def test_robust_agrees_with_zscore_on_normal_data():
    rows = np.random.default_rng(0).normal(3.0, 2.0, (100_000, 1))
    # Standard errors of median and quartiles at this size are under 0.01.
    assert robust(rows).center == pytest.approx([3.0], abs=0.03)
    assert robust(rows).scale == pytest.approx([2.0], abs=0.03)


def test_robust_of_a_heater_that_is_mostly_off_uses_the_deviation():
    heater_kw = np.array([0.0] * 90 + [3.0] * 10)[:, None]
    assert robust(heater_kw).scale == pytest.approx([0.9])  # sqrt(0.1 * 0.9) * 3


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("value", [0.0, 0.1, -4.0e7])
def test_a_constant_keeps_scale_one(scaling, value):
    scaler = SCALINGS[scaling](np.full((1000, 1), value))
    assert scaler.scale.tolist() == [1.0]
    assert scaler.forward(np.full((3, 1), value)) == pytest.approx(np.zeros((3, 1)), abs=1e-6)


def test_about_zero_seconds_without_a_value_change_nothing():
    climb = np.array([0.2, 0.4, 0.0, 0.6])[:, None]
    for unknown in (0, 7, 1000):
        scaler = about_zero(np.vstack([climb, np.zeros((unknown, 1))]), np.array([0.25]))
        assert scaler.center.tolist() == [0.0]
        assert scaler.scale == pytest.approx([0.4])


def test_about_zero_of_nothing_known_is_zero():
    scaler = about_zero(np.zeros((5, 2)), np.full(2, 0.25))
    assert scaler.forward(np.zeros((3, 2))).tolist() == [[0.0, 0.0]] * 3
    assert scaler.scale.tolist() == [0.25, 0.25]


def test_about_zero_the_first_hill_of_a_flat_country_is_no_cliff():
    flat = about_zero(np.full((9, 1), 0.002), np.array([0.25]))
    assert flat.forward(np.array([[0.3]])) == pytest.approx(np.array([[3.0]]))
