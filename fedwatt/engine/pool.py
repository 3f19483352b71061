"""All vehicles' series in one tensor, from which windows are gathered.

A window of L seconds is L·F neighbouring numbers of the series [seconds, F], so a batch is gathered
from an overlapping view whose row i starts at second i: no window is ever stored. Of a fleet that
is too large for memory the tensors are views of its files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.data import Fleet
from fedwatt.data.paged import Mapped
from fedwatt.data.split import SPLITS
from fedwatt.errors import DataError


@dataclass(frozen=True)
class Windows:
    """The windows of one split, vehicle after vehicle."""

    starts: Tensor  # first second of each window in the pooled series, [W]
    labels: Tensor  # scaled energies [W]
    offsets: NDArray[np.int64]  # vehicle k's windows are offsets[k]:offsets[k+1]; [K+1]

    def count(self, vehicle: int) -> int:
        """n_k."""
        return int(self.offsets[vehicle + 1] - self.offsets[vehicle])

    def of(self, vehicles: Sequence[int]) -> "Windows":
        """The windows of some vehicles alone, in the order in which they are given."""
        rows = [slice(int(self.offsets[k]), int(self.offsets[k + 1])) for k in vehicles]
        counts = [self.count(k) for k in vehicles]
        return Windows(
            torch.cat([self.starts[own] for own in rows]),
            torch.cat([self.labels[own] for own in rows]),
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
    mapped: Mapped | None = None  # the files behind the tensors, if there are any

    def release(self) -> None:
        """Give back the memory of what was read from files; no value changes."""
        if self.mapped is not None:
            self.mapped.release()

    @cached_property
    def rows(self) -> Tensor:
        """View of the series whose row i is the window from second i on, [seconds, window·F]."""
        seconds, features = self.series.shape
        return self.series.as_strided(
            (seconds - self.window + 1, self.window * features), (features, 1)
        )

    def gather(self, starts: Tensor) -> Tensor:
        """Windows [..., window, features] that begin at `starts` [...]."""
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
    if fleet.mapped is not None and fleet.mapped.holds(fleet.clients):
        return _mapped_pool(fleet.mapped, fleet.window, device, dtype)
    lengths = [len(client.series) for client in fleet.clients]
    begin = np.concatenate([[0], np.cumsum(lengths)[:-1]])

    def windows(split: str) -> Windows:
        starts = [
            client.ends[split] - (client.window - 1) + first
            for client, first in zip(fleet.clients, begin, strict=True)
        ]
        labels = np.concatenate([client.labels[split] for client in fleet.clients])
        return Windows(
            torch.from_numpy(np.concatenate(starts).astype(np.int64)).to(device),
            torch.from_numpy(labels).to(device, dtype),
            np.concatenate([[0], np.cumsum([len(own) for own in starts])]),
        )

    return Pool(
        torch.from_numpy(np.concatenate([c.series for c in fleet.clients])).to(device, dtype),
        fleet.clients[0].window,
        windows("train"),
        windows("validation"),
        windows("test"),
    )


def _mapped_pool(mapped: Mapped, window: int, device: torch.device, dtype: torch.dtype) -> Pool:
    """The pool of a fleet in files; in float32 on the host nothing is copied."""

    def windows(split: str) -> Windows:
        return Windows(
            torch.from_numpy(mapped.starts[split]).to(device),
            torch.from_numpy(mapped.labels[split]).to(device, dtype),
            mapped.offsets[split],
        )

    series = torch.from_numpy(mapped.series).to(device, dtype)
    return Pool(series, window, windows("train"), windows("validation"), windows("test"), mapped)
