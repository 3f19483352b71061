"""MOON: a loss that pulls representations to the global model's, away from the last local one's.

Li, He and Song, CVPR 2021, arXiv 2103.16257, for regression. With the representations z of the
model being trained, z_g of the broadcast model and z_p of the model this vehicle ended its last
training with:

    loss = F_k + μ mean_batch softplus((cos(z, z_p) - cos(z, z_g)) / T)

which is the two-class cross entropy of the paper. The representation is the input of the last
layer; no projection head is added, so that all methods share one architecture. A vehicle that has
never trained skips the term, which equals the common choice z_p = z_g up to rounding.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from fedwatt.errors import SettingError
from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.models import Model
from fedwatt.settings import Range, number


def contrast(z: Tensor, z_global: Tensor, z_previous: Tensor, temperature: float) -> Tensor:
    """Return softplus((cos(z, z_p) - cos(z, z_g)) / T) [..., batch] of z [..., batch, width]."""
    similar_g = cosine_similarity(z, z_global, dim=-1, eps=1e-8)
    similar_p = cosine_similarity(z, z_previous, dim=-1, eps=1e-8)
    return softplus((similar_p - similar_g) / temperature)


@dataclass(frozen=True, kw_only=True)
class Contrastive(LocalRule):
    """The model-contrastive loss of MOON."""

    contrast_weight: float = number(0.1, "[0, inf)", "(0 is FedAvg)", tuned=Range(1e-3, 10.0))  # μ
    temperature: float = number(0.5, "(0, inf)", tuned=Range(0.1, 1.0, log=False))  # T

    shapes_loss = True

    def adapt(self, model: Model) -> Model:
        """Refuse a model without a representation; return it unchanged."""
        if not model.has_representation:
            raise SettingError(
                f"MOON contrasts representations, and {type(model).__name__} declares none. Use an "
                "MLP, a GRU or an LSTM, or override represent, head and has_representation."
            )
        return model

    def client_state(self, model: Model) -> Rows:
        """Return no last model."""
        return {"last_model": torch.zeros(model.layout.size), "seen": torch.tensor(False)}

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the plan: the last models, and whether each vehicle has one that counts."""
        last = client_state["last_model"].to(start.anchor.dtype)
        return client_state, {
            "last_model": last,
            "seen": client_state["seen"] & (self.contrast_weight > 0),
        }

    def shapes(self, plan: Rows) -> bool:
        """Return whether any vehicle of the stack has a last model."""
        return bool(plan["seen"].any())

    def penalty(
        self, representation: Tensor, model: Model, windows: Tensor, anchor: Tensor, plan: Rows
    ) -> Tensor | float:
        """Return μ times the contrast; 0 for a vehicle that trains for the first time."""
        seen = plan["seen"]
        with torch.no_grad():
            z_global = model.representation(model.layout.split(anchor), windows)
            z_previous = model.representation(model.layout.split(plan["last_model"]), windows)
        values = contrast(representation, z_global, z_previous, self.temperature)
        return torch.where(seen[:, None], self.contrast_weight * values, 0.0)

    def finish(
        self, client_state: Rows, plan: Rows, start: Start, deltas: Tensor
    ) -> tuple[Rows, Rows]:
        """Store the trained model as the last model."""
        return {
            "last_model": start.origin + deltas,
            "seen": torch.ones_like(client_state["seen"]),
        }, {}
