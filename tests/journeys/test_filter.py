"""The filter of a trip: against a full Gaussian posterior, and with what may go wrong."""

import json
import math
import time
from dataclasses import asdict

import numpy as np
import pytest

from fedwatt.journeys.filter import TripFilter, TripPrior

PRIOR = TripPrior(constant_wh=8.0, drift_wh=12.0, drift_s=300.0, load=0.05, noise_wh=10.0)


def posterior(prior, seconds, predicted, residual, at, ahead):
    """Mean and variance of the next residual by the covariance of all windows, [n] each."""
    times, loads = np.append(seconds, at), np.append(predicted, ahead)
    apart = np.abs(times[:, None] - times[None])
    cov = prior.constant_wh**2 + prior.drift_wh**2 * np.exp(-apart / prior.drift_s)
    cov += prior.load**2 * np.outer(loads, loads) + prior.noise_wh**2 * np.eye(len(times))
    gain = np.linalg.solve(cov[:-1, :-1], cov[:-1, -1])
    return gain @ residual, cov[-1, -1] - gain @ cov[:-1, -1]


def test_it_is_the_posterior_of_the_gaussian_process():
    seconds = np.array([60, 120, 240, 300])  # the third minute is missing
    predicted, residual = np.array([100.0, 40.0, -20.0, 150.0]), np.array([22.0, 9.0, 3.0, 30.0])
    filter = TripFilter(PRIOR, 60)
    for second, own, extra in zip(seconds, predicted, residual, strict=True):
        filter.observe(int(second), own, own + extra)
    found = filter.expected(360, 120.0)
    mean, variance = posterior(PRIOR, seconds, predicted, residual, 360, 120.0)
    assert found.wh == pytest.approx(mean) and found.deviation_wh == pytest.approx(variance**0.5)
    # Another phase has seen nothing yet.
    fresh = filter.expected(365, 100.0)
    assert fresh.wh == 0.0
    assert fresh.deviation_wh == pytest.approx(math.sqrt(64 + 144 + 25 + 100))


def test_a_heater_that_no_channel_shows_is_learned_within_minutes():
    filter = TripFilter(PRIOR, 60)
    for second in range(60, 601):
        filter.observe(second, 100.0, 120.0)
    assert filter.expected(660, 100.0).wh == pytest.approx(20.0, abs=5.0)
    rest = filter.rest(1000.0, 600.0)
    # Ten windows more: the drift fades, so less than ten times 20.
    assert 100.0 < rest.wh < 200.0 and rest.deviation_wh > filter.expected(660, 100.0).deviation_wh


def test_the_rest_of_the_trip_before_anything_is_seen():
    found = TripFilter(PRIOR, 60).rest(600.0, 60.0)
    # The drift's mean over the window: its covariance 144 e^(-|s - t|/300), over all s and t.
    t = (np.arange(2000) + 0.5) * 60 / 2000
    drift = 144 * np.exp(-np.abs(t[:, None] - t) / 300).mean()
    assert found.wh == 0.0
    assert found.deviation_wh == pytest.approx(math.sqrt(64 + drift + 900 + 100), rel=1e-4)


def test_missing_energy_tow_and_charging_teach_nothing():
    filter = TripFilter(PRIOR, 60)
    for measured in (math.nan, math.inf, -400.0, 900.0):
        filter.observe(60, 150.0, measured)
    assert filter.expected(120, 150.0).wh == 0.0 and filter.ignored == 2


def test_a_part_of_a_window_says_less():
    short, long = TripFilter(PRIOR, 60), TripFilter(PRIOR, 60)
    short.observe(10, 5.0, 10.0, seconds=10)
    long.observe(10, 30.0, 60.0)
    assert short.expected(70, 100.0).wh > 0
    assert short.expected(70, 100.0).deviation_wh > long.expected(70, 100.0).deviation_wh


def test_it_survives_json():
    one, other = TripFilter(PRIOR, 60), TripFilter(PRIOR, 60)
    one.observe(60, 100.0, 130.0)
    other.restore(json.loads(json.dumps(one.to_json())))
    assert other.expected(120, 90.0) == one.expected(120, 90.0)
    assert other.rest(500.0, 300.0) == one.rest(500.0, 300.0)
    assert TripPrior(**json.loads(json.dumps(asdict(PRIOR)))) == PRIOR


def test_a_step_takes_microseconds():
    filter, quickest = TripFilter(PRIOR, 60), math.inf
    for _ in range(5):
        began = time.process_time()
        for second in range(60, 1060):
            filter.expected(second, 100.0)
            filter.observe(second, 100.0, 110.0)
        quickest = min(quickest, (time.process_time() - began) / 1000)
    assert quickest < 20e-6
