"""Trips dealt to clients anew: every trip once, shares as asked, and even when α is large."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwatt.errors import DataError, SettingError
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows import DataSettings, build_fleet
from fedwatt.windows.experiments import (
    REGIMES,
    deal,
    dirichlet_shares,
    mixture_shares,
    repartition,
    trip_regime,
)

SPEEDS_MPS = {"slow": 4.0, "medium": 9.0, "fast": 20.0}


def make(counts: dict[str, int], name: str = "car", kind: str = "passenger") -> Vehicle:
    """A vehicle with so many trips of each regime."""
    return Vehicle(
        name,
        tuple(
            Trip(
                f"{regime}-{number}",
                {
                    "speed_mps": np.full(90, SPEEDS_MPS[regime]),
                    "energy_wh": np.full(90, float(number)),
                },
            )
            for regime, count in counts.items()
            for number in range(count)
        ),
        kind=kind,
    )


FLEET = [make({"slow": 60, "medium": 30, "fast": 10}, "a"), make({"medium": 30, "fast": 50}, "b")]


def names(vehicles: list[Vehicle]) -> list[str]:
    return sorted(trip.name for vehicle in vehicles for trip in vehicle.trips)


EVERY_TRIP = sorted(f"{vehicle.name}/{trip.name}" for vehicle in FLEET for trip in vehicle.trips)


def test_regimes_by_mean_speed():
    result = [
        REGIMES[trip_regime(trip)] for trip in make({"slow": 1, "medium": 1, "fast": 1}).trips
    ]
    assert result == ["slow", "medium", "fast"]
    at_the_edge = Trip("1", {"speed_mps": np.full(4, 25 / 3.6)})
    assert REGIMES[trip_regime(at_the_edge)] == "medium"


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["mild", "moderate", "severe", "dirichlet:0.5", "dirichlet:20"]),
    st.integers(1, 9),
)
def test_every_trip_is_in_exactly_one_client(recipe, clients):
    made = repartition(FLEET, recipe, clients)
    assert len(made) == clients
    assert names(made) == EVERY_TRIP


def test_skew_by_hand():
    # 90 trips of each regime, three clients: severe gives 81 favourites and 9 of the others in all.
    even = [make({"slow": 90, "medium": 90, "fast": 90})]
    for recipe, own, other in (("mild", 45, 22.5), ("moderate", 63, 13.5), ("severe", 81, 4.5)):
        for number, client in enumerate(repartition(even, recipe, 3)):
            regimes = Counter(trip_regime(trip) for trip in client.trips)
            counts = [regimes[regime] for regime in range(3)]
            expected = [own if regime == number else other for regime in range(3)]
            assert counts == pytest.approx(expected, abs=1)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(0, 5), st.floats(0.05, 50))
def test_shares_are_met_to_within_a_trip(clients, seed, alpha):
    shares = dirichlet_shares(alpha, clients, np.random.default_rng(seed))
    dealt = deal(FLEET, shares, seed)
    total = Counter(trip_regime(trip) for vehicle in FLEET for trip in vehicle.trips)
    for client, trips in enumerate(dealt):
        counts = Counter(trip_regime(trip) for _, trip in trips)
        for regime in range(len(REGIMES)):
            assert abs(counts[regime] - shares[regime, client] * total[regime]) <= 1


@given(st.integers(1, 30), st.floats(1e-4, 1e6), st.integers(0, 20))
def test_shares_add_up(clients, alpha, seed):
    rows = dirichlet_shares(alpha, clients, np.random.default_rng(seed)).sum(axis=1)
    assert rows == pytest.approx(np.ones(3))
    for skew in ("mild", "moderate", "severe"):
        assert mixture_shares(skew, clients).sum(axis=1) == pytest.approx(np.ones(3))


def test_a_large_alpha_is_nearly_even_and_a_small_one_is_not():
    def unevenness(alpha):
        made = [
            dirichlet_shares(alpha, 10, np.random.default_rng(seed)).max() for seed in range(20)
        ]
        return np.mean(made)

    # The largest of thirty shares: 0.1 if even; standard deviation 0.1 · sqrt(9 / (10 α + 1)).
    assert unevenness(1e6) == pytest.approx(0.1, abs=0.001)
    assert unevenness(1.0) > 0.25
    assert unevenness(0.05) > 0.8


def test_the_parts_of_a_recorded_trip_stay_together():
    complete = make({"slow": 12, "fast": 12})
    # Every trip was cut at a gap, and its second part is of another regime.
    cut = tuple(
        part
        for trip in complete.trips
        for part in (
            trip,
            Trip(f"{trip.name}b", {**trip.channels, "speed_mps": np.full(90, 9.0)}, trip.name),
        )
    )
    clients = repartition([replace(complete, trips=cut)], "mild", 3)
    for client in clients:
        names = {trip.name for trip in client.trips}
        assert len(names) % 2 == 0 and names == {
            name
            for base in names
            for name in (base.removesuffix("b"), f"{base.removesuffix('b')}b")
        }
    assert sum(len(client.trips) for client in clients) == 48


def test_draws_do_not_depend_on_the_order_of_vehicles():
    dealt = repartition(FLEET, "dirichlet:1", 4)
    same = repartition(FLEET[::-1], "dirichlet:1", 4)
    first, second = ([[trip.name for trip in c.trips] for c in fleet] for fleet in (dealt, same))
    assert first == second


def test_clients_build_a_fleet_and_stay_marked_as_simulated():
    made = repartition(FLEET, "moderate", 3)
    fleet = build_fleet(made, DataSettings(features="speed", window=60), "dealt")
    assert fleet.names == ("client-001", "client-002", "client-003")
    assert all(client.simulated for client in fleet.clients)


def test_a_partition_with_too_few_trips_is_refused():
    with pytest.raises(DataError, match="fewer clients"):
        repartition(FLEET, "mild", 100)


def test_another_seed_deals_other_trips():
    dealt, other = (repartition(FLEET, "mild", 4, seed) for seed in (0, 1))
    assert names(dealt) == names(other)
    assert [names([client]) for client in dealt] != [names([client]) for client in other]


def test_unknown_recipes_and_mixed_kinds_are_refused():
    with pytest.raises(SettingError, match="Did you mean 'severe'"):
        repartition(FLEET, "sever", 3)
    for recipe in ("dirichlet:", "dirichlet:-1", "dirichlet:nan", "dirichlet"):
        with pytest.raises(SettingError, match="positive"):
            repartition(FLEET, recipe, 3)
    with pytest.raises(DataError, match="each kind by itself"):
        repartition([*FLEET, make({"slow": 3}, "c", kind="bus")], "mild", 2)
