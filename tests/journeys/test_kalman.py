"""One step of the filters, against the same in matrices."""

import numpy as np
import pytest

from fedwatt.journeys.kalman import OUTLIER, begin, carried, expected, updated


def matrices(state):
    """Mean [3] and covariance [3, 3] of a state."""
    upper = np.zeros((3, 3))
    upper[np.triu_indices(3)] = state[3:]
    return np.array(state[:3]), upper + np.triu(upper, 1).T


def test_two_steps_are_those_of_the_matrix_form():
    state = begin(400.0, 500.0, 0.04)
    for share, predicted, residual in ((0.01, 30.0, 12.0), (0.02, -15.0, -20.0)):
        mean, covariance = matrices(state)
        fade = np.diag([1.0, np.exp(-36.0 / 700.0), 1.0])
        fresh = np.diag([0.0, 500.0**2 * (1 - fade[1, 1] ** 2), 0.0])
        mean, covariance = fade @ mean, fade @ covariance @ fade + fresh
        seen = np.array([share, share, predicted])
        gain = covariance @ seen / (seen @ covariance @ seen + 225.0)
        state = updated(carried(state, 36.0, 500.0, 700.0), share, predicted, residual, 225.0)
        found = matrices(state)
        assert found[0] == pytest.approx(mean + gain * (residual - seen @ mean))
        assert found[1] == pytest.approx(covariance - np.outer(gain, seen @ covariance))


def test_what_lies_five_deviations_off_is_no_news():
    state = begin(3.0, 4.0, 0.0)
    # Variance 9 + 16 of the parts and 144 of the noise: a deviation is 13.
    assert expected(state, 1.0, 50.0) == (0.0, 25.0)
    assert updated(state, 1.0, 50.0, OUTLIER * 13 + 0.1, 144.0) is None
    assert updated(state, 1.0, 50.0, -OUTLIER * 13 - 0.1, 144.0) is None
    assert updated(state, 1.0, 50.0, OUTLIER * 13 - 0.1, 144.0) is not None
