"""The trip balance: trips told apart, a bounded shift, and no harm where features are collinear."""

import numpy as np
import pytest

from fedwatt.journeys.mixture import TripBalance, fitted_balance
from fedwatt.journeys.ridge import trip_numbers

FEATURES = ("speed", "drag", "cold", "heater")


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


def trips(count, draw):
    """Return means of features whose second column repeats the first, and what trips lack."""
    means = draw.normal(size=(count, 4))
    means[:, 1] = means[:, 0] * (1 + 1e-9)
    means[:, 3] = 0.0
    return means, 0.2 + 0.1 * means[:, 2], np.full(count, 2.0)


def test_collinear_and_constant_directions_are_dropped_and_the_rest_is_found():
    draw = np.random.default_rng(0)
    means, lacking, energy = trips(2000, draw)
    balance = fitted_balance(FEATURES, means, lacking, energy)
    assert balance.columns.tolist() == [0, 2]
    assert balance.delta == pytest.approx([0.0, 0.1, 0.2], abs=0.01)
    # Few trips are held back by a ridge that is worth 20.
    few = fitted_balance(FEATURES, means[:20], lacking[:20], energy[:20])
    assert 0.3 * 0.2 < few.delta[2] < 0.8 * 0.2
    assert fitted_balance(FEATURES, means[:4], lacking[:4], energy[:4]) is None


def test_a_trip_like_no_other_is_not_shifted_and_others_within_the_limit():
    draw = np.random.default_rng(1)
    means, lacking, energy = trips(200, draw)
    balance = fitted_balance(FEATURES, means, lacking, energy)
    mountain = np.array([[50.0, 50.0, -900.0, 7.0]])
    assert balance.shift(mountain).tolist() == [0.0]
    edge = (balance.center + 3.9 * np.sign(balance.delta[:-1]) * balance.scale)[None]
    full = np.zeros((1, means.shape[1]))
    full[:, balance.columns] = edge
    assert balance.shift(full) == pytest.approx([balance.limit])
    assert balance.limit <= np.abs(balance.shift(means)).max() + 1e-12
    again = TripBalance.from_json(balance.to_json())
    assert again.shift(means) == pytest.approx(balance.shift(means))


def test_trips_count_by_the_share_of_their_energy(monkeypatch):
    """Lack 1, 5 and 9 in trips of these energies, with a constant alone to add.

    Σ |e - δ| / e is least at the median weighted by 1/e, which is 1 (1 against 1/5 + 1/9); were it
    Σ |e - δ|, absolute errors, it would be 5.
    """
    monkeypatch.setattr("fedwatt.journeys.mixture.TRIPS", 0.0)
    energy = np.array([1.0, 1.0, 5.0, 5.0, 9.0, 9.0])
    balance = fitted_balance(("speed",), np.zeros((6, 1)), energy, energy)
    # Relative errors below 0.02 weigh alike, which leaves about as much.
    assert balance.delta == pytest.approx([1.0], abs=0.03)
