"""The trip prior: sums by hand for two windows, factors found again, and their bounds."""

import numpy as np
import pytest

from fedwatt.journeys.intervals import MOST_FACTOR, USUAL, fitted_prior, in_wh, residual_sums
from fedwatt.windows.client import Client


def a_client(ends, labels) -> Client:
    return Client(
        name="car",
        features=("ac",),
        window=60,
        series=np.zeros((max(ends) + 1, 1), np.float32),
        ends={"validation": np.array(ends)},
        labels={"validation": np.array(labels, np.float32)},
        label_center_wh=200.0,
        label_scale_wh=100.0,
        strata={},
        trips={},
    )


def test_sums_by_hand():
    # Windows of one trip, half a minute apart; the first and the last are neighbours.
    client = a_client([59, 89, 119], [1.5, 0.5, 1.0])
    sums = residual_sums(client, np.array([1.0, 1.0, 0.5]))
    # Residuals 0.5, -0.5, 0.5; loads 3, 3, 2.5.
    shared = 0.03**2 + 0.06**2 + 0.03**2 * np.array([3, 3, 2.5]) ** 2
    noise = 0.09**2 + 0.06**2 * np.array([3, 3, 2.5])
    variance = shared + noise
    model = 0.03**2 + 0.06**2 * np.exp(-60 / 500) + 0.03**2 * 7.5
    weight = 1 / (variance[0] * variance[2])
    assert sums[:3] == pytest.approx([1, 0.25 * model * weight, model**2 * weight])
    assert sums[3:] == pytest.approx(
        [
            (0.25 * noise / variance**2).sum(),
            (noise * shared / variance**2).sum(),
            (noise**2 / variance**2).sum(),
        ]
    )
    assert not residual_sums(a_client([59], [1.0]), np.array([1.0])).any()


def test_factors_of_variance_are_found_again_and_bounded():
    # A shared variance twice the usual: 10 = 2 · 5; three times the noise: 90 = 2 · 30 + 3 · 10.
    prior = fitted_prior([np.array([1000.0, 10.0, 5.0, 90.0, 30.0, 10.0])])
    assert prior.drift_cold_wh == pytest.approx(2**0.5 * USUAL.drift_cold_wh)
    assert prior.noise_wh == pytest.approx(3**0.5 * USUAL.noise_wh)
    assert prior.drift_s == USUAL.drift_s
    wild = fitted_prior([np.array([1000.0, 1e6, 5.0, 1e9, 30.0, 10.0])])
    assert wild.load == pytest.approx(MOST_FACTOR**0.5 * USUAL.load)
    assert wild.noise_wh == pytest.approx(MOST_FACTOR**0.5 * USUAL.noise_wh)
    none = fitted_prior([np.array([1000.0, -9.0, 5.0, 0.0, 30.0, 10.0])])
    assert none.constant_wh == pytest.approx(USUAL.constant_wh / MOST_FACTOR**0.5)


def test_too_little_to_fit_is_left_to_the_usual_prior():
    assert fitted_prior([]) == USUAL
    assert fitted_prior([np.array([150.0, 10.0, 5.0, 90.0, 30.0, 10.0])]) == USUAL


def test_a_prior_in_wh_gives_the_same_deviation_in_wh():
    prior = in_wh(USUAL, 80.0)
    scaled = USUAL.window_deviation_wh(np.array([1.5]), np.array([12.0]), 0.5)
    assert prior.window_deviation_wh(np.array([120.0]), np.array([12.0]), 0.5) == pytest.approx(
        80.0 * scaled
    )
