"""Replies made by hand, and the displacement a server would take from them."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedwatt.methods.defence import Defence
from fedwatt.methods.server import Replies, mean_delta


def replies_of(deltas: Tensor | Sequence, windows: Sequence[float] | None = None) -> Replies:
    """Replies with the displacements [N, D], each of one window where nothing else is said."""
    deltas = torch.as_tensor(deltas, dtype=torch.float64)
    counts = [1.0] * len(deltas) if windows is None else windows
    return Replies(
        deltas,
        torch.tensor(counts, dtype=torch.float64),
        len(deltas),
        float(sum(counts)),
        np.random.default_rng(0),
    )


def step(defence: Defence, deltas: Tensor | Sequence, windows: Sequence[float] | None = None):
    """Return the step of averaging behind `defence`, [D]."""
    return mean_delta(defence.screen(replies_of(deltas, windows)))


def normal(count: int, size: int, seed: int = 0) -> Tensor:
    """Random displacements [count, size], float64."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((count, size)))
