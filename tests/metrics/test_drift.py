from math import isnan

from pytest import approx

from fedwatt.metrics import drift_dispersion, mean_drift


def test_mean_and_dispersion_by_hand():
    # Mean 4, deviations -2, -2, +4: population variance 24/3 = 8.
    assert mean_drift([2.0, 2.0, 8.0]) == approx(4.0)
    assert drift_dispersion([2.0, 2.0, 8.0]) == approx(8**0.5 / 4, rel=1e-11)


def test_dispersion_has_no_unit():
    assert drift_dispersion([0.02, 0.02, 0.08]) == approx(drift_dispersion([2, 2, 8]), rel=1e-9)


def test_nobody_moved_is_zero_not_undefined():
    assert drift_dispersion([0.0, 0.0]) == 0.0


def test_no_reply_is_undefined():
    assert isnan(mean_drift([])) and isnan(drift_dispersion([]))
