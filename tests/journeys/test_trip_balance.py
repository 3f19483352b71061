"""A ridge whose trips add up: windows told apart by trip, and what their shares ask for."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.journeys.ridge import LOCAL, moments, solve, window_features
from fedwatt.journeys.trip_balance import trip_balance, trip_numbers
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.windows import Client, DataSettings, build_client


def test_windows_are_told_apart_by_trip_whatever_their_stride():
    # Trips of 200, 130 and 260 s, windows of 60 s: by hand, windows a stride holds of each.
    for stride, windows in ((1, (141, 71, 201)), (25, (6, 3, 9)), (60, (3, 2, 4)), (90, (2, 1, 3))):
        ends = np.concatenate(
            [
                first + np.arange(59, length, stride)
                for first, length in ((0, 200), (200, 130), (330, 260))
            ]
        )
        assert np.bincount(trip_numbers(ends, 60)).tolist() == list(windows)
    assert trip_numbers(np.array([59]), 60).tolist() == [0]


@pytest.fixture(scope="module")
def client():
    settings = DataSettings(features="physics", stride=10)
    return build_client(next(iter(synthetic_vehicles(1, trips=20))), settings)


def trip_errors(client, beta):
    """Relative error of the mean energy of each training trip."""
    trip = trip_numbers(client.ends["train"], client.window)
    found, true = (
        np.bincount(trip, client.energy_wh(values)) / np.bincount(trip)
        for values in (window_features(client, "train") @ beta, client.labels["train"])
    )
    return np.abs(found / true - 1)


def test_shares_of_trips_get_better_and_windows_hardly_worse(client):
    own = moments(client)
    beta = solve(own, LOCAL)
    balanced = beta + trip_balance(client, own, beta)
    assert trip_errors(client, balanced).mean() < trip_errors(client, beta).mean()
    x, y = window_features(client, "train"), client.labels["train"]
    before, after = (np.mean((x @ own - y) ** 2) for own in (beta, balanced))
    assert after < 1.05 * before


def test_a_ridge_that_is_right_stays_as_it_is(client):
    own = moments(client)
    beta = solve(own, LOCAL)
    exact = (window_features(client, "train") @ beta).astype(np.float32)
    right = replace(client, labels={**client.labels, "train": exact})
    assert np.abs(trip_balance(right, own, beta)).max() < 1e-4  # labels are float32


def test_trips_count_by_the_share_of_their_energy(monkeypatch):
    """Trips of energies 1, 5 and 9, a model that predicts 0, and a constant to add.

    Σ |e - δ| / e is least at the median weighted by 1/e, which is 1 (1 against 1/5 + 1/9); were it
    Σ |e - δ|, absolute errors, it would be 5.
    """
    monkeypatch.setattr("fedwatt.journeys.trip_balance.PULL", 0.0)
    client = Client(
        name="car",
        features=("speed",),
        window=4,
        series=np.zeros((30, 1), dtype=np.float32),
        ends={"train": np.array([3, 4, 13, 14, 25, 26])},
        labels={"train": np.array([1, 1, 5, 5, 9, 9], dtype=np.float32)},
        label_center_wh=0.0,
        label_scale_wh=1.0,
        strata={},
        trips={},
    )
    delta = trip_balance(client, moments(client), np.zeros(2))
    # Relative errors below 0.02 weigh alike, which leaves about as much.
    assert delta[-1] == pytest.approx(1.0, abs=0.03)
