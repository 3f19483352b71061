"""Pull a vehicle's weights toward the broadcast model.

Li et al., MLSys 2020: each vehicle minimises F_k(w) + (μ/2)‖w - w_t‖². The pull is added to the
gradient rather than to the loss: the same mathematics, cheaper, and exactly nothing at μ = 0.
"""

from dataclasses import dataclass

from torch import Tensor

from fedwatt.errors import check
from fedwatt.methods.rule import LocalRule, Rows


def pull(gradient: Tensor, weights: Tensor, anchor: Tensor, strength: float | Tensor) -> Tensor:
    """g + μ (w - w_t), all [..., D]; `strength` is a number or [..., 1]."""
    return gradient + strength * (weights - anchor)


@dataclass(frozen=True, kw_only=True)
class Proximal(LocalRule):
    """FedProx's local rule with the same μ for every vehicle."""

    mu: float = 0.01

    def __post_init__(self) -> None:
        check(self, "mu", self.mu >= 0, "at least 0 (0 is FedAvg)")

    def gradient(self, gradient: Tensor, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """g + μ (w - w_t)."""
        return pull(gradient, weights, anchor, self.mu)
