"""All vehicles' series in one tensor, from which windows are gathered.

A window of L seconds is L·F neighbouring numbers of the series [seconds, F], so a batch is gathered
from an overlapping view whose row i starts at second i: no window is ever stored.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.errors import DataError
from fedwatt.fleet import Fleet


@dataclass(frozen=True)
class Windows:
    """The windows of one split, vehicle after vehicle."""

    starts: Tensor
    """First second of each window in the pooled series, [W]."""
    labels: Tensor
    """Scaled energies [W]."""
    offsets: NDArray[np.int64]
    """Vehicle k's windows are offsets[k]:offsets[k+1]; [K+1]."""

    def count(self, vehicle: int) -> int:
        """n_k."""
        return int(self.offsets[vehicle + 1] - self.offsets[vehicle])


@dataclass(frozen=True)
class Pool:
    """A fleet on a device."""

    series: Tensor
    """[seconds of all vehicles, features]"""
    window: int
    train: Windows
    validation: Windows
    test: Windows

    def gather(self, starts: Tensor) -> Tensor:
        """Windows [..., window, features] that begin at `starts` [...]."""
        seconds, features = self.series.shape
        view = self.series.as_strided(
            (seconds - self.window + 1, self.window * features), (features, 1)
        )
        # index_select copies whole rows of the view; ordinary indexing is ten times slower here.
        rows = view.index_select(0, starts.flatten())
        return rows.view(*starts.shape, self.window, features)


def pool_fleet(fleet: Fleet, *, device: torch.device, dtype: torch.dtype) -> Pool:
    """Put a fleet's series and windows on `device`."""
    if not fleet.clients:
        raise DataError(
            f"The fleet '{fleet.source}' has no vehicles, so there is nothing to train."
        )
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
