"""Norm bounding: no reply may be longer than c.

Sun et al., arXiv 1911.07963: Δ_k ← Δ_k · min(1, c / ‖Δ_k‖) before the mean. It limits how far a
wrong reply can push in one round, not the direction in which it pushes; by itself it does not stop
vehicles that flip their sign at a normal length.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from fedwatt.methods.defence import Defence
from fedwatt.methods.server import Replies
from fedwatt.settings import number


def bounded(vectors: Tensor, bound: float) -> Tensor:
    """Rows of [N, D] shortened to `bound`; shorter ones stay as they are, bit for bit.

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
    """Every reply at most `bound` long."""

    bound: float = number(
        1.0, "(0, inf]", "(inf switches it off)", fixed="set by what clean rounds record"
    )
    """c; inf is no bound. The `drift` that clean rounds record says what is usual."""

    def screen(self, replies: Replies) -> Replies:
        """All replies, the long ones shortened."""
        return replace(replies, deltas=bounded(replies.deltas, self.bound))
