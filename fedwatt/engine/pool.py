"""All vehicles' series in one tensor, from which windows are gathered.

A window of L seconds is L·F neighbouring numbers of the series [seconds, F], so a batch is gathered
from an overlapping view whose row i starts at second i: no window is ever stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.errors import DataError, SettingError
from fedwatt.windows import Client, Fleet
from fedwatt.windows.splits import SPLITS


@dataclass(frozen=True)
class Windows:
    """The windows of one split, vehicle after vehicle."""

    starts: Tensor  # first second of each window in the pooled series, [W]
    labels: Tensor  # scaled energies [W]
    offsets: NDArray[np.int64]  # vehicle k's windows are offsets[k]:offsets[k+1]; [K+1]

    def count(self, vehicle: int) -> int:
        """Return n_k."""
        return int(self.offsets[vehicle + 1] - self.offsets[vehicle])

    def of(self, vehicles: Sequence[int]) -> "Windows":
        """Return the windows of some vehicles alone, in the order in which they are given."""
        rows = [slice(int(self.offsets[k]), int(self.offsets[k + 1])) for k in vehicles]
        counts = [self.count(k) for k in vehicles]
        return Windows(
            torch.cat([self.starts[row] for row in rows]),
            torch.cat([self.labels[row] for row in rows]),
            np.cumsum([0, *counts]),
        )


@dataclass(frozen=True, eq=False)
class Pool:
    """A fleet on a device."""

    series: Tensor  # [seconds of all vehicles, features]
    window: int
    train: Windows
    validation: Windows
    test: Windows

    @cached_property
    def rows(self) -> Tensor:
        """View of the series whose row i is the window from second i on, [seconds, window·F]."""
        seconds, features = self.series.shape
        return self.series.as_strided(
            (seconds - self.window + 1, self.window * features), (features, 1)
        )

    def gather(self, starts: Tensor) -> Tensor:
        """Return windows [..., window, features] that begin at `starts` [...]."""
        # index_select copies whole rows of the view; ordinary indexing is ten times slower here.
        rows = self.rows.index_select(0, starts.flatten())
        return rows.view(*starts.shape, self.window, -1)


def pool_fleet(fleet: Fleet, *, device: torch.device, dtype: torch.dtype) -> Pool:
    """Put a fleet's series and windows on `device`."""
    if not fleet.clients:
        raise DataError(
            f"The fleet '{fleet.source}' has no vehicles, so there is nothing to train."
        )
    for split in SPLITS:
        if not fleet.windows(split):
            raise DataError(
                f"No vehicle of the fleet '{fleet.source}' has {split} windows. Give each at least "
                "one trip of every split that is longer than a window."
            )
    for client in fleet.clients:
        if not client.held_out and not len(client.ends["train"]):
            raise DataError(
                f"Vehicle '{client.name}' has no training windows. Hold it out, or leave it out."
            )
    return pool_clients(fleet.clients, device=device, dtype=dtype)


def pool_clients(clients: Sequence[Client], *, device: torch.device, dtype: torch.dtype) -> Pool:
    """Return the series and windows of these vehicles on `device`."""
    train, validation, test = (_windows(clients, split, device, dtype) for split in SPLITS)
    series = _series(clients).to(device, dtype)
    return Pool(series, clients[0].window, train, validation, test)


def _series(clients: Sequence[Client]) -> Tensor:
    return torch.from_numpy(np.concatenate([client.series for client in clients]))


def _windows(
    clients: Sequence[Client], split: str, device: torch.device, dtype: torch.dtype
) -> Windows:
    """Return the windows of a split of vehicles whose series lie one after the other."""
    begin = np.cumsum([0, *(len(client.series) for client in clients)])
    starts = [
        client.ends[split] - (client.window - 1) + first
        for client, first in zip(clients, begin[:-1], strict=True)
    ]
    labels = np.concatenate([client.labels[split] for client in clients])
    return Windows(
        torch.from_numpy(np.concatenate(starts).astype(np.int64)).to(device),
        torch.from_numpy(labels).to(device, dtype),
        np.concatenate([[0], np.cumsum([len(vehicle_starts) for vehicle_starts in starts])]),
    )


class ChangingPool:
    """Vehicles that come and go: on the device are those of a round, then those of the next.

    A GPU's recordings of steps know where the series lie. So others' series are put in the place of
    those before them, as long as there is room, and the pool stays the same.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = dtype
        self.pool: Pool | None = None
        self.places: dict[int, int] = {}
        """Vehicle -> its place in the pool."""

    def hold(self, fleet: Fleet, vehicles: Sequence[int]) -> tuple[Pool, list[int]]:
        """Return a pool that these vehicles are in, and the place of each."""
        if self.pool is None or not self.places.keys() >= set(vehicles):
            everyone = sorted(set(vehicles))
            self.pool = self._filled(fleet.fetch(everyone))
            self.places = {vehicle: place for place, vehicle in enumerate(everyone)}
        return self.pool, [self.places[vehicle] for vehicle in vehicles]

    def _filled(self, clients: Sequence[Client]) -> Pool:
        seconds = sum(len(client.series) for client in clients)
        pool = self.pool
        if self.device.type == "cpu" or pool is None or seconds > len(pool.series):
            fresh = pool_clients(clients, device=self.device, dtype=self.dtype)
            if self.device.type == "cpu":
                return fresh
            # Room for rounds of a little more driving, so that the next fits as well.
            series = fresh.series.new_zeros((round(1.2 * seconds), fresh.series.shape[1]))
            series[:seconds] = fresh.series
            return replace(fresh, series=series)
        pool.series[:seconds].copy_(_series(clients))
        for split in SPLITS:
            windows = _windows(clients, split, self.device, self.dtype)
            object.__setattr__(pool, split, windows)
        return pool


def resolve_device(name: str) -> torch.device:
    """Return the device called `name`; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise SettingError(f"device must be 'auto', 'cpu' or 'cuda', got '{name}'.")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError("device 'cuda' was asked for, but PyTorch sees no GPU. Use 'cpu'.")
    return torch.device(name)
