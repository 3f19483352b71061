"""Ridges from sums, and the mean of members that are sound."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.journeys.mixture import WORST, chosen_mixture, member_weights
from fedwatt.journeys.ridge import (
    FleetRidge,
    WindowSums,
    fit_fleet_ridge,
    fleet_ridge,
    mixed_ridge,
    physical_means,
    window_features,
    window_sums,
)
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows import Client, DataSettings, build_client
from fedwatt.windows.features import feature_names, trip_features


@pytest.fixture(scope="module")
def clients():
    settings = DataSettings(features="physics", stride=7)
    return [build_client(vehicle, settings) for vehicle in synthetic_vehicles(3, trips=12)]


def test_window_features_are_means_and_one(clients):
    client = clients[0]
    end = client.ends["test"][5]
    expected = client.series[end - 59 : end + 1].astype(float).mean(axis=0)
    assert window_features(client, "test")[5] == pytest.approx([*expected, 1.0], abs=1e-9)


def test_physical_means_have_the_features_units():
    vehicle = next(iter(synthetic_vehicles(1, trips=12)))
    client = build_client(vehicle, DataSettings(features="physics", stride=7))
    first = next(trip for trip in vehicle.trips if trip.name == client.trips["train"][0])
    rows = trip_features(first, feature_names("physics"), vehicle.name)
    assert physical_means(client, "train")[0] == pytest.approx(rows[:60].mean(axis=0), abs=1e-3)


def test_a_vehicle_between_fleet_and_own_trips_by_hand():
    # One column: A = 4 / σ², a = 8 / σ²; alone it would be 2, the fleet says 1, and with σ = 2 and
    # τ = 1 both weigh 1.
    fleet = FleetRidge(np.ones(1), np.ones(1), np.ones(1), 2.0)
    sums = WindowSums(np.array([[4.0]]), np.array([8.0]), 20.0, 5.0)
    a, right, covariance, effect = fleet.posterior(sums)
    assert (a[0, 0], right[0], covariance[0, 0], effect[0]) == (1.0, 2.0, 0.5, 0.5)
    contributed = fleet.contribution(sums)
    assert contributed["matrix"] == pytest.approx([0.5]) and contributed["right"] == pytest.approx(
        [1.0]
    )
    # 20 - 2 · 1.5 · 8 + 1.5² · 4, and the trace 4 · 0.5.
    assert contributed["residual"] == pytest.approx([5.0 + 2.0])
    assert contributed["effects"] == pytest.approx([0.75])


def test_columns_are_less_their_trip_mean(clients):
    client = clients[0]
    sums = window_sums(client)
    # The intercept's column is 1 - θ in each trip: its square adds up to (1 - θ)² per window.
    windows = [
        len(ends)
        for ends in np.split(
            client.ends["train"], np.flatnonzero(np.diff(client.ends["train"]) > 7) + 1
        )
    ]
    worth = 7 / 60
    expected = sum(n * worth / (1 + 0.5 * n * worth) for n in windows)
    assert sums.gram[-1, -1] == pytest.approx(expected)
    assert sums.count == pytest.approx(sum(windows) * worth)


def test_effects_of_alike_vehicles_are_the_fleets(clients):
    draw = np.random.default_rng(0)
    beta = np.array([1.0, -2.0, 0.5])
    sums = []
    for spread in (0.0, 0.3):
        vehicles = []
        for _ in range(8):
            vehicle_beta = beta + np.array([spread, 0.0, 0.0]) * draw.normal()
            x = draw.normal(size=(400, 3))
            y = x @ vehicle_beta + draw.normal(0.0, 0.1, 400)
            vehicles.append(WindowSums(x.T @ x, x.T @ y, float(y @ y), 400.0))
        sums.append(vehicles)

    alike, different = map(fit_fleet_ridge, sums)
    assert alike.mean / alike.unit == pytest.approx(beta, abs=0.02)
    assert alike.noise == pytest.approx(0.1, rel=0.1)
    assert different.spread[0] == pytest.approx(0.3, rel=0.5)
    assert different.spread[0] > 5 * alike.spread[0] and different.spread[1] < 0.05


def test_the_mixed_ridge_predicts_labels(clients):
    fleet = fleet_ridge(clients)
    for client in clients:
        x = window_features(client, "train")
        y = client.labels["train"]
        off = np.sqrt(np.mean((x @ mixed_ridge(client, fleet) - y) ** 2))
        best = np.sqrt(np.mean((x @ np.linalg.lstsq(x, y)[0] - y) ** 2))
        assert off < 1.2 * best


def test_the_mixed_ridge_adds_validation_windows(clients):
    fleet = fleet_ridge(clients)
    client = clients[0].as_recorded()

    def with_training(ends: IntArray, labels: FloatArray) -> Client:
        return replace(
            client,
            ends={**client.ends, "train": ends},
            labels={**client.labels, "train": labels},
        )

    without = with_training(client.ends["train"][:0], client.labels["train"][:0])
    alone = with_training(client.ends["validation"], client.labels["validation"])
    np.testing.assert_allclose(
        mixed_ridge(without, fleet, validation=True), mixed_ridge(alone, fleet)
    )


def test_members_have_constant_weights_unless_one_is_unsound():
    draw = np.random.default_rng(0)
    true = draw.normal(size=400)
    good = true + draw.normal(0, 0.1, 400)
    edge = true + draw.normal(0, 0.1 * (WORST - 0.5), 400)
    bad = true + draw.normal(0, 0.1 * (WORST + 0.5), 400)
    assert member_weights(np.column_stack([edge, good]), true) == pytest.approx([0.4, 0.6])
    assert member_weights(np.column_stack([bad, good]), true).tolist() == [0, 1]
    assert member_weights(np.column_stack([good, bad]), true).tolist() == [1, 0]
    lost = np.full(400, np.nan)
    assert member_weights(np.column_stack([lost, lost]), true).tolist() == [0, 1]


def test_a_network_that_diverged_has_no_part(clients):
    client = clients[0]
    lost = np.full(len(client.ends["validation"]), np.nan)
    mixture = chosen_mixture(client, fleet_ridge(clients), lost)
    assert mixture.network == 0.0
    predicted = mixture.predict(client, "validation", lost)
    assert np.isfinite(predicted).all()
