"""Batches are a vehicle's own windows, each once an epoch."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from fedwatt.federation.batches import batch_order, stack_batches
from fedwatt.federation.pool import pool_fleet
from tests.federation.toys import random_fleet


@given(
    windows=st.integers(1, 60),
    batch=st.integers(1, 20),
    epochs=st.integers(1, 3),
    t=st.integers(0, 9),
)
def test_an_epoch_sees_every_window_once(windows: int, batch: int, epochs: int, t: int) -> None:
    per_epoch = -(-windows // batch)
    order = batch_order(1, t, "car-001", windows=windows, steps=epochs * per_epoch, batch=batch)
    for epoch in order.reshape(epochs, -1):
        assert sorted(epoch[epoch >= 0].tolist()) == list(range(windows))
    # Only the last batch of an epoch may be short.
    full = (order >= 0).sum(axis=1).reshape(epochs, per_epoch)
    assert (full[:, :-1] == batch).all()


@given(steps=st.integers(1, 12))
def test_fewer_steps_are_a_prefix(steps: int) -> None:
    whole = batch_order(1, 0, "car-001", windows=17, steps=12, batch=4)
    part = batch_order(1, 0, "car-001", windows=17, steps=steps, batch=4)
    assert np.array_equal(part, whole[:steps])


def test_a_stack_gathers_each_vehicle_its_own_windows() -> None:
    fleet = random_fleet((20, 7), window=4)
    pool = pool_fleet(fleet, device=torch.device("cpu"), dtype=torch.float32)
    orders = [
        batch_order(1, 0, client.name, windows=n, steps=steps, batch=4)
        for client, n, steps in zip(fleet.clients, (20, 7), (5, 2), strict=True)
    ]
    batches = stack_batches(pool, pool.train, [0, 1], orders)
    for step, active in [(0, 2), (1, 2), (4, 1)]:
        windows, labels, share = batches.at(step, active)
        assert windows.shape == (active, 4, 4, 8)
        for k in range(active):
            client, chosen = fleet.clients[k], orders[k][step]
            valid = chosen >= 0
            assert share[k].tolist() == approx([1 / valid.sum() if v else 0.0 for v in valid])
            for b in np.flatnonzero(valid):
                end = client.ends["train"][chosen[b]]
                assert np.array_equal(windows[k, b].numpy(), client.series[end - 3 : end + 1])
                assert labels[k, b].item() == client.labels["train"][chosen[b]]
