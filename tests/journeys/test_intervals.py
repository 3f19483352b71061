"""Intervals of vehicles that no calibration has seen: by hand, and on vehicles that differ."""

import json

import numpy as np
import pytest

from fedwatt.errors import DataError
from fedwatt.journeys.intervals import (
    KINDS,
    OWN_TRIPS,
    Intervals,
    contribution,
    fleet_intervals,
    fleet_means,
    score_counts,
    vehicle_size,
)


def fleet(vehicles, draw, *, trips=30, spread=0.5):
    """Return scores of vehicles whose sizes differ: one value per trip, for every kind."""
    result = []
    for _ in range(vehicles):
        size = np.exp(spread * draw.normal())
        trip_scores = [np.abs(size * draw.normal(size=1)) for _ in range(trips)]
        result.append(dict.fromkeys(KINDS, trip_scores))
    return result


def test_a_vehicles_size_is_shrunk_to_the_fleets():
    # Five trips of the fleet's mean 2 and one own trip of 8: (5 · 2 + 8) / (6 · 2).
    assert vehicle_size([np.array([7.0, 9.0])], 2.0) == pytest.approx(1.5)
    assert vehicle_size([], 2.0) == 1.0


def test_counts_of_a_vehicle_by_hand():
    trips = [np.array([1.0, 3.0]), np.array([4.0])]
    counts = score_counts(trips, 2.0)
    assert counts.sum(axis=1) == pytest.approx(np.ones(len(OWN_TRIPS)))
    # Without own trips: halves of half for 1 and 3, half for 4.
    assert sorted(counts[0][counts[0] > 0]) == pytest.approx([0.25, 0.25, 0.5])
    # With one own trip the second is scored by the first, whose mean is the fleet's: still 4.
    assert np.flatnonzero(counts[1])[-1] == np.flatnonzero(counts[0])[-1]
    # The first is scored by the second: (5 · 2 + 4) / 12 of its size, so its scores are smaller.
    assert np.flatnonzero(counts[1])[0] < np.flatnonzero(counts[0])[0]


def test_a_vehicle_takes_its_own_contribution_off():
    draw = np.random.default_rng(0)
    scores = fleet(5, draw)
    means = fleet_means(scores)
    parts = [contribution(score, means) for score in scores]
    complete = fleet_intervals(parts)
    remaining = fleet_intervals(parts[1:])
    left = complete.without(parts[0])
    assert left.counts["trips"] == pytest.approx(remaining.counts["trips"])
    assert (left.vehicles, left.trips) == (4, 120)
    assert complete.includes(parts[0]) and not remaining.includes(parts[0])
    again = Intervals.from_json(json.loads(json.dumps(complete.to_json())))
    assert again.factor("windows") == pytest.approx(complete.factor("windows"), abs=1e-4)


def test_unseen_vehicles_are_covered_and_own_trips_narrow_the_interval():
    draw = np.random.default_rng(1)
    scores = fleet(60, draw)
    means = fleet_means(scores)
    intervals = fleet_intervals(contribution(score, means) for score in scores)
    q = intervals.quantiles("trips")
    assert q[0] > 1.05 * q[-1] and (np.diff(q) < 0.05).all()
    covered = {0: [], 20: []}
    for vehicle in fleet(200, draw, trips=60):
        for reference, share in covered.items():
            factor = intervals.factor("trips", vehicle["trips"][:reference])
            share.append(
                np.mean([float(trip[0] <= factor) for trip in vehicle["trips"][reference:]])
            )
    for share in covered.values():
        assert np.mean(share) == pytest.approx(0.9, abs=0.03)
    # Known trips make vehicles alike.
    assert np.quantile(covered[20], 0.05) > np.quantile(covered[0], 0.05)


def test_nothing_scored_is_said():
    empty = contribution({}, dict.fromkeys(KINDS, 1.0))
    assert empty.vehicles == 0
    with pytest.raises(DataError, match="Train with validation trips"):
        empty.factor("windows")
