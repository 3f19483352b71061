"""FedSAM: every step takes the gradient where the loss is worst nearby.

Qu et al., ICML 2022, and Caldarola et al., ECCV 2022, after Foret et al., ICLR 2021:

    g_h = ∇loss(w_h + ρ ∇loss(w_h) / ‖∇loss(w_h)‖)        both gradients on the same batch

The norm is that of a vehicle's whole weight vector. Pulls and preconditioners of other rules act at
w_h, not at the point beside it. Two gradients a step.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

import torch
from torch import Tensor

from fedwatt.methods.ranges import Range
from fedwatt.methods.rule import LocalRule, Rows, StepLoss
from fedwatt.settings import number

SMALLEST_NORM: Final = 1e-12
"""Added to a norm before dividing by it."""


@dataclass(frozen=True, kw_only=True)
class SharpnessAware(LocalRule):
    """The gradient at distance ρ uphill."""

    rho_sam: float = number(0.05, "[0, inf)", "(0 is FedAvg)", tuned=Range(0.01, 0.2))
    """ρ; 0 is FedAvg."""

    linear: ClassVar[bool] = False

    def explore(self, loss: StepLoss, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """∇loss(w + ρ g/‖g‖), [P, D]."""
        gradient = loss.gradient(weights)
        norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True) + SMALLEST_NORM
        return loss.gradient(torch.addcmul(weights, gradient, self.rho_sam / norm))
