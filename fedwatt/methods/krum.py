"""Krum and Multi-Krum: trust the replies that lie closest to many others.

Blanchard et al., NeurIPS 2017. Of N replies at most f are assumed to be wrong. A reply's score is
the sum of its squared distances to its N - f - 2 nearest *others*; Krum takes the reply with the
lowest score, Multi-Krum the m lowest and averages them by windows. The proof needs N ≥ 2f + 3, and
m ≤ N - 2f - 2 where several are kept.

Distances span the whole model. A reply is never its own neighbour, even if another equals it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedwatt.methods.defence import Defence, selected, squared_distances
from fedwatt.methods.server import Replies
from fedwatt.settings import number


def krum_scores(deltas: Tensor, byzantine: int) -> Tensor:
    """Σ of squared distances to the N - f - 2 nearest others, from [N, D] to [N].

    >>> krum_scores(torch.tensor([[0.0], [1.0], [1.0], [2.0], [9.0]]), byzantine=1)
    tensor([  2.,   1.,   1.,   2., 113.], dtype=torch.float64)
    """
    distances = squared_distances(deltas)
    distances.fill_diagonal_(torch.inf)  # sorts behind all others, duplicates included
    return distances.sort(dim=-1).values[:, : len(deltas) - byzantine - 2].sum(dim=-1)


@dataclass(frozen=True, kw_only=True)
class Krum(Defence):
    """The one reply that is closest to its neighbours; ties go to the first by name."""

    byzantine: int = number(1, "[0, inf]")  # f, how many replies of a round may be wrong

    @property
    def replies_needed(self) -> int:
        """2f + 3."""
        return 2 * self.byzantine + 3

    def screen(self, replies: Replies) -> Replies:
        """Return a single reply."""
        return self._lowest(replies, 1)

    def _lowest(self, replies: Replies, count: int) -> Replies:
        self.refuse_fewer(len(replies.deltas), "this round")
        scores = krum_scores(replies.deltas, self.byzantine)
        return selected(replies, scores.argsort(stable=True)[:count])


@dataclass(frozen=True, kw_only=True)
class MultiKrum(Krum):
    """The m replies with the lowest scores, averaged by windows."""

    keep: int = number(0, "[0, inf]", "(0: N - 2·byzantine - 2)")
    """m; 0: N - 2f - 2, the most for which the guarantee holds."""

    @property
    def replies_needed(self) -> int:
        """2f + 3, and f more than are kept."""
        return max(super().replies_needed, self.keep + self.byzantine)

    def screen(self, replies: Replies) -> Replies:
        """m of the replies."""
        most = len(replies.deltas) - 2 * self.byzantine - 2
        return self._lowest(replies, self.keep or most)
