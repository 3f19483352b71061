"""Defences: screen the updates of a round before they are averaged, in case some are wrong.

A vehicle with a broken sensor, a stale label or bad intentions can send anything, and one update is
enough to move a mean anywhere. A defence turns the updates of a round into updates that may be
averaged: it keeps some of them, shortens them, or replaces them by their centre. The server rule
is unchanged, so every defence works with every server that needs only the mean update (average,
SGD, Adam, Adagrad, Yogi).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import floor

import torch
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.methods.server import Replies, weighted_sum
from fedwatt.settings import Tunable, number


@dataclass(frozen=True, kw_only=True)
class Defence(Tunable, ABC):
    """A rule that screens the updates of one round, without state."""

    @property
    def replies_needed(self) -> int:
        """Least number of updates for the guarantee; with fewer, no model is made."""
        return 1

    @abstractmethod
    def screen(self, replies: Replies) -> Replies:
        """Return the updates that the server may average."""

    def refuse_fewer(self, replies: int, where: str) -> None:
        """Raise unless `replies`, the number of updates in `where`, are enough."""
        if replies < self.replies_needed:
            settings = ", ".join(f"{name}={value}" for name, value in vars(self).items())
            raise SettingError(
                f"{type(self).__name__}({settings}) needs at least "
                f"{self.replies_needed} replies, and "
                f"{where} brings {replies}. Let more vehicles take part, or assume fewer faults."
            )


def selected(replies: Replies, rows: Tensor) -> Replies:
    """Return the updates in `rows`, in ascending order."""
    rows = rows.sort().values
    return replace(
        replies,
        deltas=replies.deltas[rows],
        windows=replies.windows[rows],
        uploads={name: values[rows] for name, values in replies.uploads.items()},
        steps=None if replies.steps is None else replies.steps[rows],
    )


def in_their_place(replies: Replies, delta: Tensor) -> Replies:
    """Return one update `delta` [D] with the windows of all."""
    return replace(
        replies, deltas=delta[None], windows=replies.windows.sum()[None], uploads={}, steps=None
    )


def squared_distances(vectors: Tensor) -> Tensor:
    """Return ‖x_i - x_j‖² [N, N] of the rows of [N, D], in float64.

    By differences, a row at a time: the shorter ‖x‖² + ‖y‖² - 2x·y loses all digits when replies
    nearly agree, and may even turn negative.

    >>> squared_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[ 0., 25.],
            [25.,  0.]], dtype=torch.float64)
    """
    vectors = vectors.double()
    return torch.stack([(vectors - vector).square().sum(dim=-1) for vector in vectors])


def krum_scores(deltas: Tensor, byzantine: int) -> Tensor:
    """Return the sums [N] of squared distances to the N - f - 2 nearest others, of rows [N, D].

    >>> krum_scores(torch.tensor([[0.0], [1.0], [1.0], [2.0], [9.0]]), byzantine=1)
    tensor([  2.,   1.,   1.,   2., 113.], dtype=torch.float64)
    """
    distances = squared_distances(deltas)
    distances.fill_diagonal_(torch.inf)  # sorts behind all others, duplicates included
    return distances.sort(dim=-1).values[:, : len(deltas) - byzantine - 2].sum(dim=-1)


@dataclass(frozen=True, kw_only=True)
class Krum(Defence):
    """The update closest to its neighbours; of equal ones the first by name.

    Blanchard et al., NeurIPS 2017, arXiv 1703.02757. Of N updates at most f are wrong. The score of
    an update is

        s_k = Σ_j ‖Δ_k - Δ_j‖²      over its N - f - 2 nearest others

    over the whole model, and the server gets the update with the lowest score. The proof needs N ≥
    2f + 3.
    """

    byzantine: int = number(1, "[0, inf]")  # f, how many replies of a round may be wrong

    @property
    def replies_needed(self) -> int:
        """2f + 3 updates, of which f may be wrong."""
        return 2 * self.byzantine + 3

    def screen(self, replies: Replies) -> Replies:
        """Return the update with the lowest score."""
        return self._lowest(replies, 1)

    def _lowest(self, replies: Replies, count: int) -> Replies:
        self.refuse_fewer(len(replies.deltas), "this round")
        scores = krum_scores(replies.deltas, self.byzantine)
        return selected(replies, scores.argsort(stable=True)[:count])


@dataclass(frozen=True, kw_only=True)
class MultiKrum(Krum):
    """The m updates with the lowest scores of Krum, averaged by windows.

    Blanchard et al., NeurIPS 2017, arXiv 1703.02757. The proof needs

        N ≥ 2f + 3,    m ≤ N - 2f - 2
    """

    keep: int = number(0, "[0, inf]", "(0: N - 2·byzantine - 2)")
    """m; 0: N - 2f - 2, the most for which the guarantee holds."""

    @property
    def replies_needed(self) -> int:
        """2f + 3 updates, and at least m + f."""
        return max(super().replies_needed, self.keep + self.byzantine)

    def screen(self, replies: Replies) -> Replies:
        """Return m of the updates."""
        most = len(replies.deltas) - 2 * self.byzantine - 2
        return self._lowest(replies, self.keep or most)


def middle(vectors: Tensor) -> Tensor:
    """Return the median [D] of each column of [N, D], float64.

    >>> import torch
    >>> middle(torch.tensor([[1.0, 5.0], [3.0, -5.0], [9.0, 1.0], [2.0, 2.0]]))
    tensor([2.5000, 1.5000], dtype=torch.float64)
    """
    # torch.median gives the lower of two middle values: biased wherever replies are even in number.
    ordered = vectors.double().sort(dim=0).values
    count = len(vectors)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def trimmed_mean(vectors: Tensor, trim: float) -> Tensor:
    """Return the mean [D] of columns of [N, D] without ⌊trim·N⌋ values at either end, float64.

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
    """The median of every weight.

    Yin et al., ICML 2018, arXiv 1803.01498, one vote per vehicle, since claimed windows could
    outvote the others:

        Δ = median_k Δ_k      for each weight alone

    with the mean of the middle two where N is even. Safe while fewer than half of the updates are
    wrong.
    """

    def screen(self, replies: Replies) -> Replies:
        """Return the median in place of the replies."""
        return in_their_place(replies, middle(replies.deltas))


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(Defence):
    """The trimmed mean of every weight.

    Yin et al., ICML 2018, arXiv 1803.01498, one vote per vehicle:

        Δ = mean of Δ_k without its b lowest and b highest values,  b = ⌊βN⌋

    for each weight alone. Safe while at most b updates are wrong.
    """

    trim: float = number(
        0.2,
        "[0, 0.5)",
        ": something must be left",
        fixed="how many vehicles are assumed to be wrong",
    )
    """β, the share of replies dropped at either end."""

    def screen(self, replies: Replies) -> Replies:
        """Return the trimmed mean in place of the replies."""
        return in_their_place(replies, trimmed_mean(replies.deltas, self.trim))


def geometric_median(
    vectors: Tensor,
    weights: Tensor,
    *,
    iterations: int = 4,
    smoothing: float = 1e-5,
    tolerance: float = 1e-6,
) -> Tensor:
    """Return the geometric median [D] of rows [N, D] with weights [N] that sum to 1, float64.

    >>> import torch
    >>> vectors = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [8.0, 6.0]])
    >>> shares = torch.full((4,), 0.25, dtype=torch.float64)
    >>> geometric_median(vectors, shares, iterations=0)
    tensor([2.0000, 1.5000], dtype=torch.float64)
    >>> bool(geometric_median(vectors, shares, iterations=100).norm() < 1e-4)
    True
    """
    vectors = vectors.double()
    centre = weighted_sum(weights, vectors)
    distances = (vectors - centre).norm(dim=-1)
    for _ in range(iterations):
        pull = weights / distances.clamp(min=smoothing)
        before = (weights * distances).sum()
        centre = weighted_sum(pull / pull.sum(), vectors)
        distances = (vectors - centre).norm(dim=-1)
        if ((weights * distances).sum() - before).abs() <= tolerance * before:
            break
    return centre


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(Defence):
    """RFA: the point with the least total distance to the updates, by smoothed Weiszfeld steps.

    Pillutla et al., IEEE TSP 2022, arXiv 1912.13445. With α_k = n_k / n_t, at most R times or until
    Σ α_k ‖v - Δ_k‖ changes by less than a part `tolerance`:

        v ← Σ α_k Δ_k
        repeat  β_k = α_k / max(ν, ‖v - Δ_k‖),  v ← Σ β_k Δ_k / Σ β_k

    Wrong updates do bounded harm while they hold less than half of the windows; each vehicle
    reports its number of windows.
    """

    iterations: int = number(4, "[0, inf]", "(0 is the mean)")
    """R; 0 is the plain mean."""
    smoothing: float = number(1e-5, "(0, inf)", fixed="a safeguard")
    """ν, the distance below which a reply draws no harder."""
    tolerance: float = number(1e-6, "[0, inf)", fixed="a safeguard")
    """Relative change of the total distance that ends the iteration."""

    def screen(self, replies: Replies) -> Replies:
        """Return the geometric median in place of the replies."""
        centre = geometric_median(
            replies.deltas,
            replies.shares,
            iterations=self.iterations,
            smoothing=self.smoothing,
            tolerance=self.tolerance,
        )
        return in_their_place(replies, centre)


def bounded(vectors: Tensor, bound: float) -> Tensor:
    """Shorten rows of [N, D] to the length `bound`; shorter ones are unchanged, bit for bit.

    >>> import torch
    >>> bounded(torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]), 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000],
            [0.0000, 0.0000]])
    """
    length = vectors.double().norm(dim=-1, keepdim=True)
    # A length of 0 divides to infinity, which the clamp turns into the factor 1.
    factor: Tensor = bound / length
    return vectors * factor.clamp(max=1).to(vectors.dtype)


@dataclass(frozen=True, kw_only=True)
class NormBound(Defence):
    """Updates of length `bound` or less.

    Sun et al., arXiv 1911.07963, 2019:

        Δ_k ← Δ_k min(1, c / ‖Δ_k‖)

    Limits how far a wrong update pushes in one round, not its direction; does not stop flipped
    signs.
    """

    bound: float = number(
        1.0, "(0, inf]", "(inf switches it off)", fixed="set by what clean rounds record"
    )
    """c; inf is no bound. The `drift` that clean rounds record says what is usual."""

    def screen(self, replies: Replies) -> Replies:
        """Return all updates, shortened to the bound."""
        return replace(replies, deltas=bounded(replies.deltas, self.bound))
