"""Trips and vehicles go to one split each, whatever the fleet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedwatt.windows.splits import (
    SPLITS,
    held_out_vehicles,
    natural_key,
    split_counts,
    split_trips,
)

SHARES = (0.7, 0.1, 0.2)
names = st.lists(st.text(max_size=6), min_size=3, max_size=40, unique=True)


def uncut(trips: list[str]) -> dict[str, str]:
    return {trip: trip for trip in trips}


@pytest.mark.parametrize(
    ("trips", "counts"),
    [(3, (1, 1, 1)), (5, (3, 1, 1)), (10, (7, 1, 2)), (20, (14, 2, 4)), (41, (29, 4, 8))],
)
def test_counts_by_hand(trips, counts):
    assert split_counts(trips, SHARES) == counts


def test_lopsided_shares_still_give_everyone_a_trip():
    assert split_counts(3, (0.01, 0.01, 0.98)) == (1, 1, 1)
    assert split_counts(10, (0.01, 0.01, 0.98)) == (1, 1, 8)


@given(
    trips=st.integers(3, 300),
    weights=st.tuples(*[st.floats(0.01, 1.0)] * 3),
)
def test_counts_add_up_and_stay_close(trips, weights):
    total = sum(weights)
    shares = (weights[0] / total, weights[1] / total, weights[2] / total)
    counts = split_counts(trips, shares)
    assert sum(counts) == trips
    assert min(counts) >= 1
    # Rounding moves a count by less than one; the guaranteed trips of two small splits by two.
    assert all(abs(c - trips * s) < 3 for c, s in zip(counts, shares, strict=True))


@given(trips=names, vehicle=st.text(max_size=6), seed=st.integers(0, 5))
def test_every_trip_is_in_exactly_one_split(trips, vehicle, seed):
    splits = split_trips(vehicle, uncut(trips), SHARES, seed)
    assert tuple(splits) == SPLITS
    together = [trip for split in SPLITS for trip in splits[split]]
    assert sorted(together) == sorted(trips)
    assert all(splits[split] for split in SPLITS)


@given(trips=names, order=st.randoms(use_true_random=False))
def test_the_order_of_trips_does_not_matter(trips, order):
    shuffled = list(trips)
    order.shuffle(shuffled)
    first, again = (split_trips("car", uncut(order), SHARES, 0) for order in (trips, shuffled))
    assert first == again


def test_vehicles_and_seeds_split_differently():
    trips = uncut([str(number) for number in range(40)])
    first = split_trips("car-1", trips, SHARES, 0)
    assert first != split_trips("car-2", trips, SHARES, 0)
    assert first != split_trips("car-1", trips, SHARES, 1)


def test_the_split_of_uncut_trips_is_the_one_it_always_was():
    # Written down from the version that committed results were made with: they must not move.
    splits = split_trips("car-1", uncut([str(number) for number in range(10)]), SHARES, 0)
    train = ("0", "3", "4", "5", "6", "7", "9")
    assert splits == {"train": train, "validation": ("2",), "test": ("1", "8")}


@pytest.mark.parametrize("seed", range(20))
def test_parts_of_a_recorded_trip_share_its_split(seed):
    # Six recordings, the first three cut in two: 4, 1 and 1 of them, whatever their parts.
    parts = {"1": "1", "1b": "1", "2": "2", "2b": "2", "3": "3", "3b": "3"}
    splits = split_trips("car", parts | uncut(["4", "5", "6"]), SHARES, seed)
    complete = split_trips("car", uncut(["1", "2", "3", "4", "5", "6"]), SHARES, seed)
    for split, count in zip(SPLITS, (4, 1, 1), strict=True):
        assert tuple(trip for trip in splits[split] if not trip.endswith("b")) == complete[split]
        assert len(complete[split]) == count
        assert {trip[0] for trip in splits[split]} == set(complete[split])


def test_a_vehicle_that_joins_moves_at_most_one_held_out_vehicle():
    fleet = [f"car-{number}" for number in range(30)]
    before = held_out_vehicles(fleet, 6, seed=0)
    after = held_out_vehicles([*fleet, "unseen_vehicle"], 6, seed=0)
    assert len(before) == len(after) == 6
    assert len(before - after) <= 1
    assert before == held_out_vehicles(reversed(fleet), 6, seed=0)
    assert before != held_out_vehicles(fleet, 6, seed=1)


@given(st.lists(st.text(max_size=5)))
def test_natural_order_is_total(texts):
    # Different names must never tie: a tie would leave their order to chance.
    keys = [natural_key(text) for text in set(texts)]
    assert len(set(keys)) == len(keys)
    sorted(keys)
