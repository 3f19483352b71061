"""FedSAM: every step takes the gradient where the loss is worst nearby.

Qu et al., ICML 2022, and Caldarola et al., ECCV 2022, after Foret et al., ICLR 2021:

    g_h = ∇loss(w_h + ρ ∇loss(w_h) / ‖∇loss(w_h)‖)        both gradients on the same batch

The norm is that of a vehicle's whole weight vector. Pulls and preconditioners of other rules act at
w_h, not at the point beside it. Two gradients a step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Final

import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.methods.ranges import Range
from fedwatt.methods.rule import LocalRule, Rows, StepLoss

SMALLEST_NORM: Final = 1e-12
"""Added to a norm before dividing by it."""


@dataclass(frozen=True, kw_only=True)
class SharpnessAware(LocalRule):
    """The gradient at distance ρ uphill."""

    rho_sam: float = 0.05
    """ρ; 0 is FedAvg."""

    linear: ClassVar[bool] = False
    ranges: ClassVar[Mapping[str, Range]] = {"rho_sam": Range(0.01, 0.2)}

    def __post_init__(self) -> None:
        check(self, "rho_sam", 0 <= self.rho_sam < inf, "at least 0 and finite (0 is FedAvg)")

    def explore(self, loss: StepLoss, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """∇loss(w + ρ g/‖g‖), [P, D]."""
        gradient = loss.gradient(weights)
        norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True) + SMALLEST_NORM
        return loss.gradient(torch.addcmul(weights, gradient, self.rho_sam / norm))
