"""FedNova: averaging that does not favour vehicles with more local steps.

Wang et al., NeurIPS 2020, arXiv 2007.07481. A vehicle's update is divided by the weight of gradient
that its steps added up, a_k = ‖a_k‖₁, before averaging, and the mean is scaled back by their mean:

    w_{t+1} = w_t + Σ_k ω_k (τ / a_k) Δ_k,      τ = Σ_k ω_k a_k

    plain SGD        a_k = H_k
    pull μ           a_k = (1 - (1 - η_t μ)^H_k) / (η_t μ)
    momentum ρ       a_k = (H_k - ρ (1 - ρ^H_k) / (1 - ρ)) / (1 - ρ)

Local rules give their a_k; a rule whose steps are not linear in the gradients, such as the
fractional one, has none and cannot be combined with FedNova. Equal H_k give FedAvg. With a pull the
authors' code has τ = Σ ω_k H_k instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.methods.rule import Rows
from fedwatt.methods.server import Replies, ServerRule, moved, weighted_sum
from fedwatt.models import Model


@dataclass(frozen=True, kw_only=True)
class Nova(ServerRule):
    """FedNova's server rule."""

    normalises = True
    sum_limits: ClassVar[Mapping[str, float]] = {"accumulation": 2.0**20}
    """‖a_k‖₁ is of the order of the local steps of a round."""
    adds_up = True
    # Vehicles divide by a_k before they add up, and add up a_k as well.

    def contribution(self, model: Model, delta: Tensor, uploads: Rows) -> Tensor:
        """Return Δ_k / a_k."""
        return delta / uploads["accumulation"]

    def mean_of_sums(
        self, model: Model, delta: Tensor, weight: float, uploads: Rows
    ) -> tuple[Tensor, Rows]:
        """Return Σ ω_k (τ/a_k) Δ_k, and τ = Σ ω_k a_k in place of every a_k."""
        delta, uploads = super().mean_of_sums(model, delta, weight, uploads)
        return delta * uploads["accumulation"], uploads

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return w_t + Σ ω_k (τ/a_k) Δ_k."""
        a = replies.uploads["accumulation"].double()
        shares = replies.shares
        # Exactly FedAvg where all vehicles did the same: Σ ω_k is 1 only up to rounding.
        ratio = torch.ones_like(a) if a.max() == a.min() else (shares * a).sum() / a
        return state, moved(weights, weighted_sum(replies.filled * shares * ratio, replies.deltas))
