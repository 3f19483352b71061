"""Median and trimmed mean of the replies, weight by weight.

Yin et al., ICML 2018. Every weight of the model is looked at on its own, and every vehicle has one
vote: a vehicle that claimed many windows would otherwise outvote the rest.

    median    the middle value; of an even number, the mean of the two middle ones
    trimmed   the mean of what is left without the b = ⌊βN⌋ lowest and b highest values

A coordinate is safe as long as fewer than half of the replies (median) or at most b (trimmed) are
wrong.
"""

from dataclasses import dataclass
from math import floor

from torch import Tensor

from fedwatt.methods.defence import Defence, in_their_place
from fedwatt.methods.server import Replies
from fedwatt.settings import number


def middle(vectors: Tensor) -> Tensor:
    """Median of each column, from [N, D] to [D], float64.

    >>> import torch
    >>> middle(torch.tensor([[1.0, 5.0], [3.0, -5.0], [9.0, 1.0], [2.0, 2.0]]))
    tensor([2.5000, 1.5000], dtype=torch.float64)
    """
    # torch.median gives the lower of two middle values: biased wherever replies are even in number.
    ordered = vectors.double().sort(dim=0).values
    count = len(vectors)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def trimmed_mean(vectors: Tensor, trim: float) -> Tensor:
    """Mean of each column without ⌊trim·N⌋ values at either end, from [N, D] to [D], float64.

    >>> import torch
    >>> trimmed_mean(torch.tensor([[1.0], [90.0], [3.0], [-70.0], [5.0]]), 0.2)
    tensor([3.], dtype=torch.float64)
    """
    # 0.29 * 100 is 28.999999999999996 in floating point; its floor must still be 29.
    dropped = floor(round(trim * len(vectors), 9))
    count = len(vectors)
    return vectors.double().sort(dim=0).values[dropped : count - dropped].mean(dim=0)


@dataclass(frozen=True, kw_only=True)
class Median(Defence):
    """Every weight's median."""

    def screen(self, replies: Replies) -> Replies:
        """Return the median in place of the replies."""
        return in_their_place(replies, middle(replies.deltas))


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(Defence):
    """Every weight's mean without its extremes."""

    trim: float = number(
        0.2,
        "[0, 0.5)",
        ": something must be left",
        fixed="how many vehicles are assumed to be wrong",
    )
    """β, the share of replies dropped at *either* end."""

    def screen(self, replies: Replies) -> Replies:
        """Return the trimmed mean in place of the replies."""
        return in_their_place(replies, trimmed_mean(replies.deltas, self.trim))
