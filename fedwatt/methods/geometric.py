"""The geometric median of the replies: the point with the least total distance to them.

RFA, Pillutla et al., IEEE TSP 2022, by the smoothed Weiszfeld iteration. With α_k = n_k / n_t:

    v ← Σ α_k Δ_k;    repeat    β_k = α_k / max(ν, ‖v - Δ_k‖),    v ← Σ β_k Δ_k / Σ β_k

at most R times, or until Σ α_k ‖v - Δ_k‖ changes by less than a part `tolerance`. Every iteration
is one weighted mean, so it could run under secure aggregation. Wrong replies do bounded harm while
they hold less than half of the *windows*; how many a vehicle has is its own word.
"""

from dataclasses import dataclass

from torch import Tensor

from fedwatt.methods.defence import Defence, in_their_place
from fedwatt.methods.server import Replies, weighted_sum
from fedwatt.settings import number


def geometric_median(
    vectors: Tensor,
    weights: Tensor,
    *,
    iterations: int = 4,
    smoothing: float = 1e-5,
    tolerance: float = 1e-6,
) -> Tensor:
    """Weighted geometric median of [N, D] with weights [N] that sum to 1, [D] in float64.

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
    """RFA's smoothed Weiszfeld iteration."""

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
