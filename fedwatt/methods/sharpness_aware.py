"""Sharpness-aware local steps: FedSAM with two gradients per step, FedLESAM with one."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedwatt.methods.rule import LocalRule, Rows, Start, StepLoss
from fedwatt.models import Model
from fedwatt.settings import Range, number

SMALLEST_NORM = 1e-12
"""Added to a norm before dividing by it."""


@dataclass(frozen=True, kw_only=True)
class SharpnessAware(LocalRule):
    """FedSAM's local rule: gradients at distance ρ uphill.

    Qu et al., ICML 2022, arXiv 2206.02618, and Caldarola et al., ECCV 2022, arXiv 2203.11834. Both
    gradients of a step are on the same batch:

        g_h = ∇loss(w_h + ρ ∇loss(w_h) / ‖∇loss(w_h)‖)

    The norm is that of a vehicle's whole weight vector. Pulls and preconditioners of other rules
    act at w_h, not at the point beside it. `sam+fedcm` is MoFedSAM, `sam+scaffold` FedGAMMA.
    """

    rho_sam: float = number(0.05, "[0, inf)", "(0 is FedAvg)", tuned=Range(0.01, 0.2))
    """ρ; 0 is FedAvg."""

    linear = False

    def explore(self, loss: StepLoss, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """Return ∇loss(w + ρ g/‖g‖), [P, D]."""
        gradient = loss.gradient(weights)
        norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True) + SMALLEST_NORM
        return loss.gradient(torch.addcmul(weights, gradient, self.rho_sam / norm))


@dataclass(frozen=True, kw_only=True)
class GlobalShift(LocalRule):
    """FedLESAM's local rule: gradients at distance ρ back along the path of the global model.

    Fan et al., ICML 2024, arXiv 2405.18890. From w_k^old, the model that vehicle k received last,
    the server moved downhill to the present one, so

        o = ρ (w_k^old - w_t) / ‖w_k^old - w_t‖,    o = 0 at the first time
        g_h = ∇loss(w_h + o)

    Nothing more is sent. Other rules see weights relative to w_t or to earlier weights, which the
    constant shift leaves as they are. This is the paper's method; the published code indexes the
    flat update by the number of the tensor and shifts every tensor by one number.
    """

    rho_lesam: float = number(0.05, "[0, inf)", "(0 is FedAvg)", tuned=Range(0.01, 0.2))
    """ρ; 0 is FedAvg."""

    def conflict(self, other: LocalRule) -> str:
        """Refuse rules that read the weights themselves, or perturb them as well."""
        if isinstance(other, SharpnessAware):
            return "SharpnessAware and GlobalShift both move the point of the gradient; use one."
        if other.shapes_loss:
            return (
                f"{type(other).__name__} compares models, and GlobalShift moves the one that is "
                "trained. Use 'sam' in its place."
            )
        return ""

    def client_state(self, model: Model) -> Rows:
        """Return no last broadcast, and that there was none."""
        return {"sent_before": torch.zeros(model.layout.size), "was_there": torch.tensor(False)}

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the plan: o [P, D]."""
        back = client_state["sent_before"].to(start.anchor) - start.anchor
        length = back.norm(dim=-1, keepdim=True) + SMALLEST_NORM
        seen_before = client_state["was_there"][:, None]
        shift = torch.where(seen_before, self.rho_lesam * back / length, torch.zeros_like(back))
        return client_state, {"shift": shift}

    def shift(self, plan: Rows) -> Tensor:
        """Return o."""
        return plan["shift"]

    def finish(
        self, client_state: Rows, plan: Rows, start: Start, deltas: Tensor
    ) -> tuple[Rows, Rows]:
        """Store w_t."""
        seen = torch.ones_like(client_state["was_there"])
        return {"sent_before": start.anchor, "was_there": seen}, {}
