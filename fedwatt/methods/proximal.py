"""Pull a vehicle's weights toward the broadcast model.

Li et al., MLSys 2020: each vehicle minimises F_k(w) + (μ/2)‖w - w_t‖². The pull is added to the
gradient rather than to the loss: the same mathematics, cheaper, and exactly nothing at μ = 0.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedwatt.methods.ranges import Range
from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.settings import number


def pull(gradient: Tensor, weights: Tensor, anchor: Tensor, strength: float | Tensor) -> Tensor:
    """g + μ (w - w_t), all [..., D]; `strength` is a number or [..., 1]."""
    return gradient + strength * (weights - anchor)


def pull_accumulation(steps: Tensor, learning_rate: float, mu: Tensor) -> Tensor:
    """‖a_k‖₁ = (1 - (1 - η μ_k)^H_k) / (η μ_k) of H_k = `steps` with pulls μ_k, float64.

    >>> mu = torch.tensor([0.1, 0.0], dtype=torch.float64)
    >>> [round(a, 10) for a in pull_accumulation(torch.tensor([11, 11]), 0.15, mu).tolist()]
    [10.2110342916, 11.0]
    """
    steps, shrink = steps.double(), learning_rate * mu.double()
    return torch.where(shrink == 0, steps, (1 - (1 - shrink) ** steps) / shrink)


@dataclass(frozen=True, kw_only=True)
class Proximal(LocalRule):
    """FedProx's local rule with the same μ for every vehicle."""

    mu: float = number(0.01, "[0, inf)", "(0 is FedAvg)", tuned=Range(1e-3, 1.0))

    def gradient(self, gradient: Tensor, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """g + μ (w - w_t)."""
        return pull(gradient, weights, anchor, self.mu)

    def accumulation(self, start: Start, plan: Rows) -> Tensor:
        """Later gradients count in full, earlier ones have been pulled back."""
        mu = torch.tensor(self.mu, dtype=torch.float64)
        return pull_accumulation(start.steps, start.learning_rate, mu)


@dataclass(frozen=True, kw_only=True)
class PlannedPull(LocalRule):
    """A pull of each vehicle's own strength: `begin` sets it, as "pull" [P] of the plan."""

    def gradient(self, gradient: Tensor, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """g + μ_k (w - w_t)."""
        return pull(gradient, weights, anchor, plan["pull"][:, None].to(gradient.dtype))

    def accumulation(self, start: Start, plan: Rows) -> Tensor:
        """Return FedProx's accumulated weight of the gradients, with each vehicle's own μ."""
        return pull_accumulation(start.steps, start.learning_rate, plan["pull"])
