"""Batches: the windows that a vehicle trains on in each step of a round.

A vehicle goes through its windows in a fresh random order each epoch, B at a time; the last batch
of an epoch may be short. Asked for more steps than an epoch has, it starts the next epoch.

An order is where the windows come when sorted by a mix of their number i and a key,

    x = key + i · 0x9E3779B97F4A7C15,   x ← (x ⊕ x≫30) · 0xBF58476D1CE4E5B9,
    x ← (x ⊕ x≫27) · 0x94D049BB133111EB,   x ← x ⊕ x≫31        (all modulo 2⁶⁴)

(Steele, Lea and Flood's SplitMix64). It maps 64 bits one to one, so no two windows tie, and whole
numbers come out the same on every device: a GPU draws its own batches, and they are the CPU's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.engine.pool import Pool
from fedwatt.errors import DataError
from fedwatt.methods.rule import Batch
from fedwatt.models import Model
from fedwatt.randomness import generator, key_of

GOLDEN = 0x9E3779B97F4A7C15
MIXES = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31


@dataclass(frozen=True)
class Draw:
    """The batches of a vehicle in a round, from step `begin` to step `end`."""

    seed: int
    round: int
    vehicle: str
    windows: int  # n_k
    end: int
    batch: int  # B
    begin: int = 0

    def __post_init__(self) -> None:
        if self.windows < 1:
            raise DataError(f"Vehicle '{self.vehicle}' has no training windows to draw from.")

    @property
    def per_epoch(self) -> int:
        """Steps of an epoch."""
        return -(-self.windows // self.batch)

    def key(self, epoch: int) -> int:
        """Return the 64-bit key of an epoch's order."""
        return key_of(self.seed, "batches", self.round, self.vehicle, epoch) % 2**64

    def order(self) -> NDArray[np.int32]:
        """Return window numbers [end - begin, batch]; -1 where a batch is short.

        >>> order = Draw(1, 0, "car-001", windows=5, end=4, batch=2).order()
        >>> order.shape, sorted(order[:3].ravel().tolist())  # an epoch is 3 steps, the last short
        ((4, 2), [-1, 0, 1, 2, 3, 4])
        """
        epochs = range(self.begin // self.per_epoch, -(-self.end // self.per_epoch))
        order = np.full((len(epochs), self.per_epoch * self.batch), -1, dtype=np.int32)
        for epoch, row in zip(epochs, order, strict=True):
            row[: self.windows] = np.argsort(mixed(self.key(epoch), self.windows))
        skipped = epochs.start * self.per_epoch
        return order.reshape(-1, self.batch)[self.begin - skipped : self.end - skipped]


def mixed(key: int, windows: int) -> NDArray[np.int64]:
    """Return the sort keys of windows 0 to `windows` - 1."""
    x = np.arange(windows, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(key)
    for shift, factor in MIXES:
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return (x ^ (x >> np.uint64(LAST_SHIFT))).view(np.int64)


@dataclass(frozen=True, eq=False)
class Batches:
    """The batches of P vehicles, sorted so that those with more steps come first.

    They are looked up when first asked for: a whole round in C looks up its own.
    """

    pool: Pool
    vehicles: Sequence[int]  # their numbers in the fleet
    draws: Sequence[Draw]

    @property
    def size(self) -> int:
        """B, the most windows in a batch."""
        return self.draws[0].batch

    @cached_property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """(starts, labels, shares), each [steps, P, batch], drawn where the pool is.

        `starts` are the first seconds of the windows in the pooled series, `shares` their weights
        in a batch's mean: 0 on padding, which repeats a window. Step by step, so that what the
        vehicles at work need in a step lies side by side.
        """
        device = self.pool.series.device
        dtype = self.pool.series.dtype
        windows = self.pool.train
        # Trials that share a stack and a seed draw the same batches: each is drawn once.
        places = {draw: place for place, draw in enumerate(dict.fromkeys(self.draws))}
        draws = list(places)
        chosen = orders_on(device, draws) if device.type == "cuda" else stacked_orders(draws)
        if len(draws) < len(self.draws):
            rows = torch.tensor([places[draw] for draw in self.draws], device=device)
            chosen = chosen.index_select(1, rows)
        valid = chosen >= 0
        first = torch.from_numpy(windows.offsets[list(self.vehicles)]).to(device)[:, None]
        chosen = torch.where(valid, chosen + first, 0)
        size = valid.sum(dim=-1, keepdim=True).clamp(min=1)
        share = valid.to(dtype) / size.to(dtype)
        return windows.starts[chosen], windows.labels[chosen], share

    def at(self, step: int, active: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return (windows [A, batch, window, features], labels, shares) of the first `active`
        vehicles.
        """
        starts, labels, share = (values[step, :active] for values in self.tensors)
        return self.pool.gather(starts), labels, share

    def part(self, rows: slice) -> "Batches":
        """Return the batches of some of the vehicles."""
        return Batches(self.pool, self.vehicles[rows], self.draws[rows])


def stacked_orders(draws: Sequence[Draw]) -> Tensor:
    """Return all vehicles' orders, [steps, P, batch]; -1 where a batch is short or a vehicle is
    done.
    """
    steps = draws[0].end - draws[0].begin
    batch = draws[0].batch
    stacked = np.full((steps, len(draws), batch), -1, dtype=np.int32)
    for row, draw in enumerate(draws):
        stacked[: draw.end - draw.begin, row] = draw.order()
    return torch.from_numpy(stacked)


def orders_on(device: torch.device, draws: Sequence[Draw]) -> Tensor:
    """Draw `stacked_orders` on `device` with one sort for all vehicles and epochs."""
    steps = draws[0].end - draws[0].begin
    batch = draws[0].batch
    epochs = [
        (row, epoch, _signed(draw.key(epoch)))
        for row, draw in enumerate(draws)
        for epoch in range(draw.begin // draw.per_epoch, -(-draw.end // draw.per_epoch))
    ]
    row, epoch, key = torch.tensor(epochs, device=device).T
    draw_numbers = torch.tensor(
        [(d.windows, d.per_epoch, d.begin, d.end) for d in draws], device=device
    )
    windows, per_epoch, begin, end = draw_numbers[row].T[..., None]  # each [epochs of all, 1]
    number = torch.arange(max(draw.windows for draw in draws), device=device)
    x = number * _signed(GOLDEN) + key[:, None]
    for shift, factor in MIXES:
        x = (x ^ _shifted(x, shift)) * _signed(factor)
    x = x ^ _shifted(x, LAST_SHIFT)
    # Numbers that a smaller vehicle does not have are sorted to the end; a window that shares the
    # largest key with them comes before them, because its number is smaller.
    order = x.masked_fill(number >= windows, torch.iinfo(torch.int64).max).argsort(stable=True)
    step = epoch[:, None] * per_epoch + number // batch
    valid = (number < windows) & (step >= begin) & (step < end)
    stacked = torch.full((steps, len(draws), batch), -1, dtype=torch.int64, device=device)
    # Everything else goes to a step that is cut off, so that nothing waits to count what is known.
    place = torch.where(valid, step - begin, steps)
    roomy = torch.cat([stacked, stacked[:1]])
    roomy[place, row[:, None].expand_as(place), (number % batch).expand_as(place)] = order
    return roomy[:steps]


def _signed(bits: int) -> int:
    """Return 64 bits as the signed number in which PyTorch stores them."""
    return bits - 2**64 if bits >= 2**63 else bits


def _shifted(x: Tensor, by: int) -> Tensor:
    """Shift the bits of x right with zeros from the left; PyTorch would repeat the sign."""
    return torch.bitwise_and(x >> by, 2 ** (64 - by) - 1)


@dataclass(frozen=True)
class Probes:
    """The draws of a stack in one round; a vehicle is known by its row."""

    pool: Pool
    places: Sequence[int]  # of the vehicles in the pool
    names: Sequence[str]  # of the vehicles
    runs: Sequence[int]  # that they train in
    seeds: tuple[int, ...]
    round: int
    model: Model

    def batch(self, row: int, size: int, purpose: str) -> Batch:
        """Draw at most `size` of the vehicle's training windows for `purpose` in this round."""
        return self._drawn(row, size, purpose, self.round)

    def fixed_batch(self, row: int, size: int, purpose: str) -> Batch:
        """Return at most `size` of the vehicle's training windows, the same in every round."""
        return self._drawn(row, size, purpose)

    def _drawn(self, row: int, size: int, purpose: str, *keys: int) -> Batch:
        place = self.places[row]
        windows = self.pool.train
        count = windows.count(place)
        rng = generator(self.seeds[self.runs[row]], purpose, *keys, self.names[row])
        chosen = rng.choice(count, size=min(size, count), replace=False)
        index = torch.from_numpy(chosen + windows.offsets[place]).to(windows.starts.device)
        return Batch(self.pool.gather(windows.starts[index]), windows.labels[index])

    def directions(self, row: int, count: int) -> Tensor:
        """Draw `count` directions [count, D], the same for all vehicles of a run."""
        seed = self.seeds[self.runs[row]]
        device = self.pool.series.device
        return drawn_directions(seed, self.round, count, self.model.layout.size, device)


@lru_cache(maxsize=8)
def drawn_directions(seed: int, round: int, count: int, size: int, device: torch.device) -> Tensor:
    """Return standard normal directions [count, size] of a round, float64; not to be written to.

    They are common to all vehicles and methods, so those that train side by side share the draw.
    """
    normal = generator(seed, "probe directions", round).standard_normal((count, size))
    return torch.from_numpy(normal).to(device)
