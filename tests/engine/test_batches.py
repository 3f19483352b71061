"""Batches are a vehicle's own windows, each once an epoch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from fedwatt.engine.batches import Batches, Draw, mixed, orders_on, stacked_orders
from fedwatt.engine.pool import pool_fleet
from fedwatt.errors import DataError
from fedwatt.federation import Federation, Training
from fedwatt.windows import Fleet
from tests.federation.toys import random_fleet


@given(
    windows=st.integers(1, 60),
    batch=st.integers(1, 20),
    epochs=st.integers(1, 3),
    t=st.integers(0, 9),
)
def test_an_epoch_sees_every_window_once(windows: int, batch: int, epochs: int, t: int) -> None:
    per_epoch = -(-windows // batch)
    draw = Draw(1, t, "car-001", windows=windows, end=epochs * per_epoch, batch=batch)
    order = draw.order()
    for epoch in order.reshape(epochs, -1):
        assert sorted(epoch[epoch >= 0].tolist()) == list(range(windows))
    # Only the last batch of an epoch may be short.
    full = (order >= 0).sum(axis=1).reshape(epochs, per_epoch)
    assert (full[:, :-1] == batch).all()


@given(begin=st.integers(0, 11), length=st.integers(1, 12))
def test_a_part_of_the_steps_is_a_part_of_the_batches(begin: int, length: int) -> None:
    draw = Draw(1, 0, "car-001", windows=17, end=23, batch=4)
    part = replace(draw, begin=begin, end=begin + length)
    assert np.array_equal(part.order(), draw.order()[begin : begin + length])


def test_the_mix_is_splitmix64() -> None:
    # The published generator started at 0 gives these first (Vigna's splitmix64.c): it adds the
    # golden number before each output, we after, so its first is our second.
    assert [f"{x % 2**64:016x}" for x in mixed(0, 4)[1:].tolist()] == [
        "e220a8397b1dcdaf",
        "6e789e6aa1b965f4",
        "06c45d188009454f",
    ]


def test_orders_differ_by_all_that_they_are_keyed_by() -> None:
    draw = Draw(1, 0, "car-001", windows=50, end=10, batch=5)
    remaining = [
        replace(draw, seed=2),
        replace(draw, round=1),
        replace(draw, vehicle="car-002"),
        replace(draw, begin=10, end=20),
    ]
    for other in remaining:
        assert not np.array_equal(draw.order(), other.order())


def test_every_window_is_as_likely_in_every_place() -> None:
    places = np.zeros((5, 5))
    for t in range(2000):
        order = Draw(1, t, "car-001", windows=5, end=5, batch=1).order().ravel()
        places[np.arange(5), order] += 1
    # 400 expected in each of 25 cells; four deviations of a binomial.
    assert np.abs(places - 400).max() < 4 * (2000 * 0.2 * 0.8) ** 0.5


@given(
    vehicles=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=5),
    begin=st.integers(0, 7),
    batch=st.integers(1, 9),
)
def test_a_gpu_would_draw_the_same(vehicles, begin: int, batch: int) -> None:
    draws = [
        Draw(3, 7, f"car-{k}", windows=windows, begin=begin, end=begin + steps, batch=batch)
        for k, (windows, steps) in enumerate(
            sorted(vehicles, key=lambda vehicle_steps: -vehicle_steps[1])
        )
    ]
    assert torch.equal(orders_on(torch.device("cpu"), draws), stacked_orders(draws).long())


def test_a_stack_gathers_each_vehicle_its_own_windows() -> None:
    fleet = random_fleet((20, 7), window=4)
    pool = pool_fleet(fleet, device=torch.device("cpu"), dtype=torch.float32)
    draws = [
        Draw(1, 0, client.name, windows=n, end=steps, batch=4)
        for client, n, steps in zip(fleet.clients, (20, 7), (5, 2), strict=True)
    ]
    batches = Batches(pool, [0, 1], draws)
    orders = [draw.order() for draw in draws]
    for step, active in [(0, 2), (1, 2), (4, 1)]:
        windows, labels, share = batches.at(step, active)
        assert windows.shape == (active, 4, 4, 8)
        for k in range(active):
            client = fleet.clients[k]
            chosen = orders[k][step]
            valid = chosen >= 0
            assert share[k].tolist() == approx([1 / valid.sum() if v else 0.0 for v in valid])
            for b in np.flatnonzero(valid):
                end = client.ends["train"][chosen[b]]
                assert np.array_equal(windows[k, b].numpy(), client.series[end - 3 : end + 1])
                assert labels[k, b].item() == client.labels["train"][chosen[b]]


def test_rows_that_draw_the_same_are_drawn_once_and_still_all_there() -> None:
    fleet = random_fleet([9, 5])
    pool = pool_fleet(fleet, device=torch.device("cpu"), dtype=torch.float64)
    draws = [
        Draw(1, 0, client.name, windows=len(client.ends["train"]), end=3, batch=4)
        for client in fleet.clients
    ]
    once = Batches(pool, [0, 1], draws).tensors
    twice = Batches(pool, [0, 1, 0, 1], [*draws, *draws]).tensors
    for alone, stacked in zip(once, twice, strict=True):
        assert torch.equal(stacked, torch.cat([alone, alone], dim=1))


def without(fleet: Fleet, split: str, vehicles: set[int]) -> Fleet:
    """The fleet with no windows of a split in some vehicles."""
    clients = [
        replace(
            client,
            ends={**client.ends, split: client.ends[split][:0]},
            labels={**client.labels, split: client.labels[split][:0]},
        )
        if k in vehicles
        else client
        for k, client in enumerate(fleet.clients)
    ]
    return replace(fleet, clients=tuple(clients))


@pytest.mark.parametrize("steps", [0, 3], ids=["epochs", "steps"])
def test_a_vehicle_without_training_windows_is_refused_by_name(steps: int) -> None:
    fleet = without(random_fleet(), "train", {2})
    training = Training(rounds=1, steps=steps, participation=1.0)
    with pytest.raises(DataError, match="Vehicle 'car-002' has no training windows"):
        Federation(fleet, training=training, device="cpu").train("fedavg")
    with pytest.raises(DataError, match="Vehicle 'car-002' has no training windows"):
        Draw(1, 0, "car-002", windows=0, end=3, batch=4)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_split_may_be_empty_in_some_vehicles_but_not_in_all(split: str) -> None:
    training = Training(rounds=1)
    some = without(random_fleet(), split, {0, 3})
    state = Federation(some, training=training, device="cpu").train("fedavg").state
    assert not state.diverged.any() and state.best_validation.isfinite().all()
    none = without(random_fleet(), split, {0, 1, 2, 3})
    with pytest.raises(DataError, match=f"No vehicle of the fleet 'toy' has {split} windows"):
        Federation(none, training=training, device="cpu").train("fedavg")
