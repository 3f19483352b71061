"""Ridges from sums, and weights that few trips leave where they were."""

import numpy as np
import pytest

from fedwatt.journeys.mixture import (
    USUAL,
    chosen_mixture,
    fleet_ridge,
    stacking_weights,
    vehicle_ridges,
)
from fedwatt.journeys.ridge import fleet_moments, moments, solve, window_features
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.windows import DataSettings, build_client


@pytest.fixture(scope="module")
def clients():
    settings = DataSettings(features="physics", stride=7)
    return [build_client(vehicle, settings) for vehicle in synthetic_vehicles(3, trips=12)]


def test_window_features_are_means_and_one(clients):
    client = clients[0]
    end = client.ends["test"][5]
    expected = client.series[end - 59 : end + 1].astype(float).mean(axis=0)
    assert window_features(client, "test")[5] == pytest.approx([*expected, 1.0], abs=1e-9)


def test_sums_give_the_ridge_of_the_windows_themselves(clients):
    x = window_features(clients[0], "train")
    y = clients[0].labels["train"].astype(float)
    # The same problem as augmented least squares.
    pull = np.sqrt(0.1 * len(y) * x.var(axis=0))
    pull[-1] = 0.0
    towards = np.linspace(-1, 1, x.shape[1])
    rows, right = np.vstack([x, np.diag(pull)]), np.concatenate([y, pull * towards])
    expected = np.linalg.lstsq(rows, right)[0]
    found = solve(moments(clients[0]), 0.1, towards=towards)
    assert x @ found == pytest.approx(x @ expected, abs=1e-6)


def test_a_strong_pull_gives_the_fleet_and_a_weak_one_the_vehicle(clients):
    fleet = fleet_ridge(clients)
    sums = moments(clients[0])
    assert solve(sums, 1e9, towards=fleet)[:-1] == pytest.approx(fleet[:-1], abs=1e-5)
    own = window_features(clients[0], "train") @ solve(sums, 1e-9)
    free = np.linalg.lstsq(window_features(clients[0], "train"), clients[0].labels["train"])[0]
    assert own == pytest.approx(window_features(clients[0], "train") @ free, abs=1e-4)
    both = fleet_moments([sums, sums])
    assert both.gram == pytest.approx(sums.gram)


def test_weights_stay_usual_for_few_trips_and_follow_many():
    draw = np.random.default_rng(0)
    true = draw.normal(size=400)
    predicted = np.column_stack([true + draw.normal(0, sd, 400) for sd in (0.5, 0.1, 0.5)])
    few, many = (stacking_weights(predicted, true, trips) for trips in (1, 10_000))
    assert np.abs(few - USUAL).max() < 0.15 and few.sum() == pytest.approx(1)
    # Independent errors: weights in proportion to 1 / variance, 4 : 100 : 4.
    assert many == pytest.approx([4 / 108, 100 / 108, 4 / 108], abs=0.03)


def test_a_network_that_diverged_has_no_part(clients):
    client = clients[0]
    ridges = vehicle_ridges(client, fleet_ridge(clients))
    lost = np.full(len(client.ends["validation"]), np.nan)
    mixture = chosen_mixture(client, ridges, lost)
    assert mixture.network == 0.0
    assert mixture.linear.shape == (len(client.features) + 1,)
