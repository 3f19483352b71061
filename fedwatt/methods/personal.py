"""Models that never leave their vehicle: Ditto, and a shared body with a personal head.

Ditto (Li et al., ICML 2021). The global half is any method, unchanged. The vehicle's own model v_k
is kept while the vehicle is away, and in a round of H_k steps continues from where it was:

    v ← v - η_p (∇loss(v) + λ (v - w_t))        on the batches of the global half;  η_p = r η_t

It begins at the first model that the vehicle receives (the authors begin at w_0). λ = 0 is training
alone, a large λ is the global model. Two gradients per step in all.

Personal head. The head v is the model's last layer, the body u all layers before it. The server
averages bodies alone, u_{t+1} = u_t + Σ p_k Δu_k, and its own head stays at its initial value v_0.

    "first"     FedRep (Collins et al., ICML 2021): τ_k = ⌈share · H_k⌉ steps of v_k with the body
                as it was sent, then H_k - τ_k steps of the body with v_k as it is
    "together"  FedPer (Arivazhagan et al., 2019): H_k steps of both
    "never"     FedBABU (Oh et al., ICLR 2022): H_k steps of the body against v_0, in all vehicles
                and for ever; for a personalised model both are fine-tuned at the end

A vehicle without a head begins with v_0; to drive, it first trains v_0 alone on its own windows.
Weights that do not move keep their bits, whatever other rules do.
"""

import logging
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.methods.contrastive import Contrastive
from fedwatt.methods.elastic import Elastic
from fedwatt.methods.momentum import FrozenMomentum
from fedwatt.methods.proximal import pull
from fedwatt.methods.rule import LocalRule, Origin, OwnTraining, Rows, Start
from fedwatt.methods.scaffold import ControlVariates
from fedwatt.methods.server import moved
from fedwatt.models import Model
from fedwatt.settings import Range, choice, number

log = logging.getLogger("fedwatt.methods")


@dataclass(frozen=True, kw_only=True)
class Companion(LocalRule):
    """A model of the vehicle's own beside the one it trains for all."""

    lam_own: float = number(0.1, "[0, inf)", "(0: alone)", tuned=Range(0.01, 2.0))
    """λ; 0: the vehicle trains alone."""
    rate_own: float = number(1.0, "(0, inf)", fixed="the rate that both share is tuned")
    """r, the own model's rate over η_t."""

    def memory(self, model: Model) -> Rows:
        """Return v_k and a flag that tells whether it was trained."""
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
        """Return v_k; w_{t+1} for a vehicle that has not trained one."""
        return self._vehicle_model(memory, start.anchor)

    def _vehicle_model(self, memory: Rows, sent: Tensor) -> Tensor:
        """Return v_k [P, D]; the broadcast model where there is none."""
        return torch.where(memory["has_own"][:, None], memory["own_model"].to(sent), sent)


@dataclass(frozen=True, kw_only=True)
class Tether(LocalRule):
    """A pull toward the broadcast model, for steps that do not begin there."""

    strength: float = Companion.lam_own
    """λ"""

    def gradient(self, gradient: Tensor, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """Return g + λ (v - w_t)."""
        return pull(gradient, weights, plan["broadcast"], self.strength)


@dataclass(frozen=True, kw_only=True)
class PersonalHead(LocalRule):
    """The last layer is the vehicle's own."""

    head_training: str = choice("first", "together", "never")
    """When the head is trained: "first", "together" with the body, or "never"."""
    head_share: float = number(0.1, "[0, 1)", "(0: the head never moves)", tuned=Range(0.02, 0.8))
    """Share of a round's steps that "first" gives the head; one is always left for the body."""
    head_steps_new: int = number(100, "[0, inf]")
    """Steps by which a vehicle that never took part makes itself a head to drive with."""

    acts_last: ClassVar[bool] = True
    looks_back: ClassVar[bool] = False

    def adapt(self, model: Model) -> Model:
        """Return the model as it is, if it tells its last layer."""
        if model.head_names is None:
            raise SettingError(
                f"A personal head is a model's last layer, and {type(model).__name__} does not "
                "tell which that is. Use an MLP, a GRU or an LSTM, or override head_names; 'ditto' "
                "gives vehicles of any model one of their own."
            )
        return model

    def conflict(self, other: LocalRule) -> str:
        """Refuse rules that treat the head as a shared part of the model."""
        name = type(other).__name__
        together = self.head_training == "together"
        if isinstance(other, Contrastive | Elastic):
            return f"{name} works on the whole model, and PersonalHead shares the body; use one."
        control = isinstance(other, ControlVariates) and other.option == 1
        if control or isinstance(other, FrozenMomentum):
            return f"{name} uploads gradients of the whole model, and the head stays on board."
        if together and other.server_half() is not None:
            return (
                f"{name} uploads what body and head learn together. Train the head apart: "
                "head_training = 'first'."
            )
        return ""

    @property
    def personalised(self) -> bool:
        """Not where all vehicles have the head that they are sent."""
        return self.head_training != "never"

    def memory(self, model: Model) -> Rows:
        """Return v_k and a flag that tells whether it was trained."""
        if not self.personalised:
            return {}
        size = int(_head(model).sum())
        return {"own_head": torch.zeros(size), "has_head": torch.tensor(False)}

    def origin(self, memory: Rows, start: Start) -> Origin | None:
        """Return the body as it was sent with the vehicle's own head, already trained if it goes
        first.
        """
        if not self.personalised:
            return None
        taken = torch.zeros_like(start.steps)
        if self.head_training == "first":
            # 0.1 · 30 is 3.0000000000000004 in floating point; that is 3 steps.
            share = torch.ceil(self.head_share * start.steps.double() - 1e-9).to(taken)
            taken = torch.minimum(share, start.steps - 1)
        return Origin(self._with_head(memory, start, taken), {}, taken)

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return which weights are the body's, [P, D]."""
        body = ~_head(start.model).to(start.anchor.device)
        return memory, {"moving": body.expand_as(start.anchor)}

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """Return the gradient of the part that is trained in this step, 0 elsewhere."""
        if self.head_training == "together":
            return gradient
        return torch.where(plan["moving"], gradient, 0.0)

    def reply(self, deltas: Tensor, plan: Rows) -> Tensor:
        """Return Δu with zeros in place of the head."""
        return torch.where(plan["moving"], deltas, 0.0)

    def finish(self, memory: Rows, plan: Rows, start: Start, deltas: Tensor) -> tuple[Rows, Rows]:
        """Keep the head."""
        if not self.personalised:
            return memory, {}
        trained = (start.origin + deltas)[:, _head(start.model).to(deltas.device)]
        return {"own_head": trained, "has_head": torch.ones_like(memory["has_head"])}, {}

    def vehicle_model(self, memory: Rows, start: Start) -> Tensor:
        """Return the present body with the own head; a vehicle without one trains v_0 first."""
        new = torch.full_like(start.steps, self.head_steps_new)
        return self._with_head(memory, start, torch.where(memory["has_head"], 0, new))

    def _with_head(self, memory: Rows, start: Start, steps: Tensor) -> Tensor:
        """Return the body as it was sent with each vehicle's head after `steps` [P] more of it
        alone.
        """
        head = _head(start.model).to(start.anchor.device)
        weights = start.anchor.clone()
        vehicle_head = memory["own_head"].to(weights)
        weights[:, head] = torch.where(memory["has_head"][:, None], vehicle_head, weights[:, head])
        plan = {"moving": head.expand_as(weights)}
        alone = OwnTraining((_HEAD_ALONE,), (plan,), weights, start.learning_rate, steps)
        return weights + start.train(alone)


def _head(model: Model) -> Tensor:
    """Return which weights [D] are the head's."""
    names = model.head_names or ()
    shapes = model.layout.shapes
    parts = [torch.full(shape, name in names).flatten() for name, shape in shapes.items()]
    return torch.cat(parts)


_HEAD_ALONE = PersonalHead()
"""Moves what its plan says, as when a head is trained."""
