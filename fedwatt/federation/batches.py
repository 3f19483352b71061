"""Which windows a vehicle trains on in each step of a round.

A vehicle goes through its windows in a fresh random order each epoch, B at a time; the last batch
of an epoch may be short. Asked for more steps than an epoch has, it starts the next epoch.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.federation.pool import Pool, Windows
from fedwatt.randomness import generator


def batch_order(
    seed: int, round: int, vehicle: str, *, windows: int, steps: int, batch: int
) -> NDArray[np.int64]:
    """Window numbers [steps, batch] of a vehicle; -1 where a batch is short.

    >>> order = batch_order(1, 0, "car-001", windows=5, steps=4, batch=2)
    >>> order.shape, sorted(order[:3].ravel().tolist())  # an epoch is 3 steps, its last one short
    ((4, 2), [-1, 0, 1, 2, 3, 4])
    """
    per_epoch = -(-windows // batch)
    order = np.full((-(-steps // per_epoch), per_epoch * batch), -1, dtype=np.int64)
    for epoch, row in enumerate(order):
        rng = generator(seed, "batches", round, vehicle, epoch)
        row[:windows] = rng.permutation(windows)
    return order.reshape(-1, batch)[:steps]


@dataclass(frozen=True)
class StackedBatches:
    """The batches of P vehicles, sorted so that those with more steps come first."""

    pool: Pool
    windows: Windows
    order: Tensor
    """Window numbers in the pool [P, steps, batch]; padding repeats window 0."""
    share: Tensor
    """Weight of each window in its batch's mean [P, steps, batch]; 0 on padding."""

    def at(self, step: int, active: int) -> tuple[Tensor, Tensor, Tensor]:
        """(windows [A, batch, window, features], labels, shares) of the first `active` vehicles."""
        index = self.order[:active, step]
        return (
            self.pool.gather(self.windows.starts[index]),
            self.windows.labels[index],
            self.share[:active, step],
        )


def stack_batches(
    pool: Pool, windows: Windows, vehicles: list[int], orders: list[NDArray[np.int64]]
) -> StackedBatches:
    """Batches of a stack from each vehicle's own `batch_order`, the longest first."""
    steps, batch = orders[0].shape
    stacked = np.full((len(orders), steps, batch), -1, dtype=np.int64)
    for row, order in zip(stacked, orders, strict=True):
        row[: len(order)] = order
    valid = stacked >= 0
    share = valid / np.maximum(valid.sum(axis=-1, keepdims=True), 1)
    first = windows.offsets[vehicles][:, None, None]
    device, dtype = pool.series.device, pool.series.dtype
    return StackedBatches(
        pool,
        windows,
        torch.from_numpy(np.where(valid, stacked + first, 0)).to(device),
        torch.from_numpy(share).to(device, dtype),
    )
