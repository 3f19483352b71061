"""Sums of residuals: by hand for two windows, and a prior found again in simulated trips."""

import numpy as np
import pytest

from fedwatt.journeys.prior import MOST_WINDOWS, USUAL, fitted_prior, in_wh, residual_sums
from fedwatt.windows.client import Client


def a_client(ends, labels) -> Client:
    return Client(
        name="car",
        features=("speed",),
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
    assert sums[0] == pytest.approx([3, 24.25, 81 + 81 + 6.25**2, 0.75, 0.25 * 24.25])
    assert sums[1] == pytest.approx([1, 7.5, 56.25, 0.25, 0.25 * 7.5])
    assert not sums[2:].any() and len(sums) == MOST_WINDOWS + 1


def test_a_prior_is_found_again():
    draw = np.random.default_rng(0)
    sums = []
    for _ in range(400):
        count = 20
        load = draw.normal(2.0, 1.0, count)
        drift = np.empty(count)
        drift[0] = draw.normal(0, 0.12)
        decay = np.exp(-60 / 400)
        for place in range(1, count):
            fresh = draw.normal(0, 0.12 * np.sqrt(1 - decay**2))
            drift[place] = decay * drift[place - 1] + fresh
        own = draw.normal(0, 0.08) + drift + draw.normal(0, 0.06) * load
        residual = own + draw.normal(0, 0.1, count)
        total = np.zeros((MOST_WINDOWS + 1, 5))
        for apart in range(MOST_WINDOWS + 1):
            loads = load[: count - apart] * load[apart:]
            both = residual[: count - apart] * residual[apart:]
            columns = (np.ones(len(loads)), loads, loads**2, both, both * loads)
            total[apart] = [column.sum() for column in columns]
        sums.append(total)
    found = fitted_prior(sums, 60)
    # What lasts, whether for ever or for minutes, is told apart less well than its sum.
    assert np.hypot(found.constant_wh, found.drift_wh) == pytest.approx(0.144, rel=0.15)
    assert found.load == pytest.approx(0.06, rel=0.3)
    assert found.noise_wh == pytest.approx(0.1, rel=0.3)


def test_too_little_to_fit_is_left_to_the_usual_prior():
    assert fitted_prior([], 60) == USUAL
    assert fitted_prior([np.zeros((MOST_WINDOWS + 1, 5))], 60) == USUAL
    assert in_wh(USUAL, 100.0).noise_wh == pytest.approx(13.0)
