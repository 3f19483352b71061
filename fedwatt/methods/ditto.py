"""Ditto: beside the shared model each vehicle trains one of its own, pulled to the broadcast one.

Li et al., ICML 2021. The global half is any method, untouched. The vehicle's own model v_k rests
while it is away, and in a round of H_k steps goes on from where it was:

    v ← v - η_p (∇loss(v) + λ (v - w_t))        on the batches of the global half;  η_p = r η_t

It begins at the model that the vehicle is sent first (the authors begin at w_0). λ = 0 is training
alone, a large λ is the global model. v_k never leaves the vehicle. Two gradients a step in all.
"""

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwatt.methods.proximal import pull
from fedwatt.methods.rule import LocalRule, OwnTraining, Rows, Start
from fedwatt.methods.server import moved
from fedwatt.models import Model
from fedwatt.settings import Range, number

log = logging.getLogger("fedwatt.methods")


@dataclass(frozen=True, kw_only=True)
class Companion(LocalRule):
    """A model of the vehicle's own beside the one it trains for all."""

    lam_own: float = number(0.1, "[0, inf)", "(0: alone)", tuned=Range(0.01, 2.0))
    """λ; 0: the vehicle trains alone."""
    rate_own: float = number(1.0, "(0, inf)", fixed="the rate that both share is tuned")
    """r, the own model's rate over η_t."""

    def memory(self, model: Model) -> Rows:
        """v_k, and whether there is one yet."""
        return {"own_model": torch.zeros(model.layout.size), "has_own": torch.tensor(False)}

    def finish(self, memory: Rows, plan: Rows, start: Start, deltas: Tensor) -> tuple[Rows, Rows]:
        """Train v_k on; one that leaves the finite numbers stays as it was."""
        here = self._vehicle_model(memory, start.anchor)
        rules = (Tether(strength=self.lam_own),) if self.lam_own else ()
        plans: tuple[Rows, ...] = ({"broadcast": start.anchor},) if self.lam_own else ()
        learning_rate = self.rate_own * start.learning_rate
        vehicle_model = moved(
            here, start.train(OwnTraining(rules, plans, here, learning_rate, start.steps)).double()
        )
        finite = vehicle_model.isfinite().all(dim=-1)
        for row in (~finite).nonzero().flatten().tolist():
            log.warning("the own model of %s is not finite: it stays", start.vehicles[row])
        return {
            "own_model": torch.where(finite[:, None], vehicle_model, here),
            "has_own": memory["has_own"] | finite,
        }, {}

    def vehicle_model(self, memory: Rows, start: Start) -> Tensor:
        """v_k; w_{t+1} for a vehicle that has none, where its own would begin."""
        return self._vehicle_model(memory, start.anchor)

    def _vehicle_model(self, memory: Rows, sent: Tensor) -> Tensor:
        """v_k [P, D], the model that is `sent` where there is none."""
        return torch.where(memory["has_own"][:, None], memory["own_model"].to(sent), sent)


@dataclass(frozen=True, kw_only=True)
class Tether(LocalRule):
    """A pull toward the broadcast model, for steps that do not begin there."""

    strength: float = Companion.lam_own
    """λ"""

    def gradient(self, gradient: Tensor, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """g + λ (v - w_t)."""
        return pull(gradient, weights, plan["broadcast"], self.strength)
