"""The filter of a trip: against a full Gaussian posterior, and with what may go wrong."""

import json
import math
import time
from dataclasses import asdict, replace

import numpy as np
import pytest

from fedwatt.journeys.filter import (
    ABSURD,
    CLIP,
    TripFilter,
    TripPrior,
    carried,
    coldness,
    expected,
    in_trip,
    updated,
)

PRIOR = TripPrior(constant_wh=8.0, drift_wh=12.0, drift_s=300.0, load=0.05, noise_wh=10.0)


def posterior(prior, seconds, predicted, residual, at, ahead):
    """Mean and variance of the next residual by the covariance of all windows, [n] each."""
    times = np.append(seconds, at)
    loads = np.append(predicted, ahead)
    apart = np.abs(times[:, None] - times[None])
    cov = prior.constant_wh**2 + prior.drift_wh**2 * np.exp(-apart / prior.drift_s)
    cov += prior.load**2 * np.outer(loads, loads) + prior.noise_wh**2 * np.eye(len(times))
    gain = np.linalg.solve(cov[:-1, :-1], cov[:-1, -1])
    return gain @ residual, cov[-1, -1] - gain @ cov[:-1, -1]


def test_it_is_the_posterior_of_the_gaussian_process():
    seconds = np.array([60, 120, 240, 300])  # the third minute is missing
    predicted = np.array([100.0, 40.0, -20.0, 150.0])
    residual = np.array([22.0, 9.0, 3.0, 30.0])
    filter = TripFilter(PRIOR, 60)
    for second, predicted_wh, extra in zip(seconds, predicted, residual, strict=True):
        filter.observe(int(second), predicted_wh, predicted_wh + extra)
    expectation = filter.expected(360, 120.0)
    mean, variance = posterior(PRIOR, seconds, predicted, residual, 360, 120.0)
    assert expectation.wh == pytest.approx(mean) and expectation.deviation_wh == pytest.approx(
        variance**0.5
    )
    # Another phase has seen nothing yet.
    fresh = filter.expected(365, 100.0)
    assert fresh.wh == 0.0
    assert fresh.deviation_wh == pytest.approx(math.sqrt(64 + 144 + 25 + 100))


def test_a_heater_that_no_channel_shows_is_learned_within_minutes():
    filter = TripFilter(PRIOR, 60)
    for second in range(60, 601):
        filter.observe(second, 100.0, 120.0)
    assert filter.expected(660, 100.0).wh == pytest.approx(20.0, abs=5.0)
    remaining_wh = filter.remainder(1000.0, 600.0)
    # Ten windows more: the drift fades, so less than ten times 20.
    assert (
        100.0 < remaining_wh.wh < 200.0
        and remaining_wh.deviation_wh > filter.expected(660, 100.0).deviation_wh
    )


def test_the_rest_of_the_trip_before_anything_is_seen():
    remaining_wh = TripFilter(PRIOR, 60).remainder(600.0, 60.0)
    # The drift's mean over the window: its covariance 144 e^(-|s - t|/300), over all s and t.
    t = (np.arange(2000) + 0.5) * 60 / 2000
    drift = 144 * np.exp(-np.abs(t[:, None] - t) / 300).mean()
    assert remaining_wh.wh == 0.0
    assert remaining_wh.deviation_wh == pytest.approx(math.sqrt(64 + drift + 900 + 100), rel=1e-4)


def test_missing_energy_tow_and_charging_teach_nothing():
    filter = TripFilter(PRIOR, 60)
    for measured in (math.nan, math.inf, -400.0, 900.0):
        filter.observe(60, 150.0, measured)
    assert filter.expected(120, 150.0).wh == 0.0


def test_it_survives_json():
    trip_filter = TripFilter(PRIOR, 60)
    other = TripFilter(PRIOR, 60)
    trip_filter.observe(60, 100.0, 130.0)
    other.restore(json.loads(json.dumps(trip_filter.to_json())))
    assert other.expected(120, 90.0) == trip_filter.expected(120, 90.0)
    assert other.remainder(500.0, 300.0) == trip_filter.remainder(500.0, 300.0)
    assert TripPrior(**json.loads(json.dumps(asdict(PRIOR)))) == PRIOR


COLD = replace(PRIOR, constant_cold_wh=6.0, drift_cold_wh=5.0, noise_load_wh=0.5, noise_drag_wh=4.0)


def matrices(state):
    """Return mean [3] and covariance [3, 3] of a state."""
    upper = np.zeros((3, 3))
    upper[np.triu_indices(3)] = state[3:]
    return np.array(state[:3]), upper + np.triu(upper, 1).T


def test_two_steps_are_those_of_the_matrix_form():
    state = (0.0, 0.0, 0.0, 400.0**2, 0.0, 0.0, 500.0**2, 0.0, 0.04**2)
    for share, predicted, residual in ((0.01, 30.0, 12.0), (0.02, -15.0, -20.0)):
        mean, covariance = matrices(state)
        fade = np.diag([1.0, np.exp(-36.0 / 700.0), 1.0])
        fresh = np.diag([0.0, 500.0**2 * (1 - fade[1, 1] ** 2), 0.0])
        mean, covariance = fade @ mean, fade @ covariance @ fade + fresh
        seen = np.array([share, share, predicted])
        gain = covariance @ seen / (seen @ covariance @ seen + 225.0)
        state = updated(carried(state, 36.0, 500.0, 700.0), share, predicted, residual, 225.0)
        computed = matrices(state)
        assert computed[0] == pytest.approx(mean + gain * (residual - seen @ mean))
        assert computed[1] == pytest.approx(covariance - np.outer(gain, seen @ covariance))


def test_a_broken_reading_counts_as_four_deviations_and_an_absurd_one_not_at_all():
    state = (0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 16.0, 0.0, 0.0)
    # Variance 9 + 16 of the parts and 144 of the noise: a deviation is 13.
    assert expected(state, 1.0, 50.0) == (0.0, 25.0)
    clipped = updated(state, 1.0, 50.0, CLIP * 13, 144.0)
    for residual in (CLIP * 13 + 1, ABSURD * 13 - 0.1):
        assert updated(state, 1.0, 50.0, residual, 144.0) == pytest.approx(clipped)
    # The worst that one window does to the next: 25 / 169 of four deviations.
    assert expected(clipped, 1.0, 50.0)[0] == pytest.approx(4 * 13 * 25 / 169)
    assert updated(state, 1.0, 50.0, ABSURD * 13 + 0.1, 144.0) == state
    assert updated(state, 1.0, 50.0, -ABSURD * 13 - 0.1, 144.0) == state


def test_cold_fast_and_loaded_windows_are_less_sure():
    # c = 1 at 0 °C: 8² + 6², (12 + 5)², (0.05 · 100)², 10² + 0.25 · 100 + 16 · 20³ / 10⁴.
    expected_wh = math.sqrt(100 + 289 + 25 + 100 + 25 + 12.8)
    deviation_wh = COLD.window_deviation_wh(np.array([100.0]), np.array([20.0]), coldness(0.0))
    assert deviation_wh == pytest.approx([expected_wh])
    fresh = TripFilter(COLD, 60)
    fresh.begin(0.0)
    assert fresh.expected(60, 100.0, speed_mps=20.0).deviation_wh == pytest.approx(expected_wh)
    # A trip before its start is the rest of a filter that has seen nothing.
    trip = COLD.trip_deviation_wh(1000.0, 10.0, 20.0, 1.0, 60)
    assert float(trip) == pytest.approx(fresh.remainder(1000.0, 600.0, speed_mps=20.0).deviation_wh)
    assert coldness(math.nan) == 0.0


def test_all_phases_at_once_are_the_filters_one_by_one():
    draw = np.random.default_rng(1)
    predicted = draw.normal(100.0, 60.0, 400)
    measured = predicted + draw.normal(10.0, 15.0, 400)
    measured[150] = 5000.0
    measured[200] = np.nan
    speed = draw.uniform(0.0, 25.0, 400)
    filter = TripFilter(COLD, 60, cold=0.7)
    one_by_one = []
    for place in range(400):
        expectation = filter.expected(60 + place, predicted[place], speed_mps=speed[place])
        one_by_one.append((predicted[place] + expectation.wh, expectation.deviation_wh))
        filter.observe(60 + place, predicted[place], measured[place], speed_mps=speed[place])
    together = in_trip(COLD, predicted, measured, 60, cold=0.7, speed_mps=speed)
    # After a missing window a filter is carried two windows at once, which is the same.
    assert np.stack(together, axis=1) == pytest.approx(np.array(one_by_one))
    strided = in_trip(
        COLD, predicted[::5], measured[::5], 60, cold=0.7, speed_mps=speed[::5], stride=5
    )
    assert strided[0] == pytest.approx(together[0][::5])


def test_a_step_takes_microseconds():
    filter = TripFilter(PRIOR, 60)
    quickest = math.inf
    for _ in range(5):
        began = time.process_time()
        for second in range(60, 1060):
            filter.expected(second, 100.0)
            filter.observe(second, 100.0, 110.0)
        quickest = min(quickest, (time.process_time() - began) / 1000)
    assert quickest < 60e-6
