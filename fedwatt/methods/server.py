"""What a server rule is, and FedAvg's: the average weighted by each vehicle's windows.

McMahan et al., AISTATS 2017; paper `eq:fedavg_agg`, written with displacements Δ_k = w_k - w_t:

    w_{t+1} = w_t + Σ_k (n_k / n_t) Δ_k      over the vehicles whose reply counted
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Replies:
    """What R vehicles handed up in one round, in ascending order of their names."""

    deltas: Tensor
    """Δ_k, [R, D]"""
    windows: Tensor
    """n_k, [R], float64"""


@dataclass(frozen=True, kw_only=True)
class ServerRule(ABC):
    """Turns replies into the next model; what it keeps between rounds goes in and comes out."""

    def state(self, size: int) -> dict[str, Tensor]:
        """What the server keeps before round 0, for D = `size` weights."""
        return {}

    @abstractmethod
    def update(
        self, state: dict[str, Tensor], weights: Tensor, replies: Replies
    ) -> tuple[dict[str, Tensor], Tensor]:
        """(state, w_{t+1} [D]) from w_t [D] and at least one reply."""


@dataclass(frozen=True, kw_only=True)
class Average(ServerRule):
    """The mean displacement, weighted by windows, summed in float64 and cast once."""

    def update(
        self, state: dict[str, Tensor], weights: Tensor, replies: Replies
    ) -> tuple[dict[str, Tensor], Tensor]:
        """w_t + Σ p_k Δ_k."""
        return state, (weights.double() + mean_delta(replies)).to(weights.dtype)


def mean_delta(replies: Replies) -> Tensor:
    """Σ_k (n_k / n_t) Δ_k [D], float64.

    >>> import torch
    >>> replies = Replies(torch.tensor([[1.0], [-1.0]]), torch.tensor([1.0, 3.0]).double())
    >>> mean_delta(replies)
    tensor([-0.5000], dtype=torch.float64)
    """
    shares = replies.windows / replies.windows.sum()
    return (shares[:, None] * replies.deltas.double()).sum(dim=0)
