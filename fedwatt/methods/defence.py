"""Defences: screen the updates before they are averaged, in case some are wrong.

A vehicle with a broken sensor, a stale label or bad intentions can send anything, and one reply is
enough to move a mean anywhere. A defence turns the replies of a round into replies that may be
averaged: it keeps some of them, shortens them, or puts their centre in their place. The server
behind it stays what it was, so every defence works with every server that needs only the mean
displacement (average, SGD, Adam, Adagrad, Yogi).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.methods.ranges import Tunable
from fedwatt.methods.server import Replies


@dataclass(frozen=True, kw_only=True)
class Defence(Tunable, ABC):
    """Screens the replies of one round; keeps nothing between rounds."""

    @property
    def replies_needed(self) -> int:
        """Replies without which the defence promises nothing; with fewer, no model is made."""
        return 1

    @abstractmethod
    def screen(self, replies: Replies) -> Replies:
        """Return the replies that the server may average."""

    def refuse_fewer(self, replies: int, where: str) -> None:
        """Raise unless `replies`, all that `where` brings, are enough."""
        if replies < self.replies_needed:
            settings = ", ".join(f"{name}={value}" for name, value in vars(self).items())
            raise SettingError(
                f"{type(self).__name__}({settings}) needs at least "
                f"{self.replies_needed} replies, and "
                f"{where} brings {replies}. Let more vehicles take part, or assume fewer faults."
            )


def selected(replies: Replies, rows: Tensor) -> Replies:
    """Only the replies in `rows`, in ascending order."""
    rows = rows.sort().values
    return replace(
        replies,
        deltas=replies.deltas[rows],
        windows=replies.windows[rows],
        uploads={name: values[rows] for name, values in replies.uploads.items()},
        steps=None if replies.steps is None else replies.steps[rows],
    )


def in_their_place(replies: Replies, delta: Tensor) -> Replies:
    """One reply with the displacement `delta` [D] and the windows of all."""
    return replace(
        replies, deltas=delta[None], windows=replies.windows.sum()[None], uploads={}, steps=None
    )


def squared_distances(vectors: Tensor) -> Tensor:
    """‖x_i - x_j‖² of the rows of [N, D], [N, N] in float64.

    By differences, a row at a time: the shorter ‖x‖² + ‖y‖² - 2x·y loses all digits when replies
    nearly agree, and may even turn negative.

    >>> squared_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[ 0., 25.],
            [25.,  0.]], dtype=torch.float64)
    """
    vectors = vectors.double()
    return torch.stack([(vectors - vector).square().sum(dim=-1) for vector in vectors])
