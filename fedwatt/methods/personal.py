"""Models that never leave their vehicle: Ditto, and a shared body with a personal head."""

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.methods.contrastive import Contrastive
from fedwatt.methods.elastic import Elastic
from fedwatt.methods.momentum import FrozenMomentum
from fedwatt.methods.proximal import pull
from fedwatt.methods.rule import LocalRule, Origin, PersonalTraining, Rows, Start
from fedwatt.methods.scaffold import ControlVariates
from fedwatt.methods.server import moved
from fedwatt.models import Model
from fedwatt.settings import Range, choice, number

log = logging.getLogger("fedwatt.methods")


@dataclass(frozen=True, kw_only=True)
class Companion(LocalRule):
    """Ditto's local rule: a personalised model beside the global one.

    Li et al., ICML 2021, arXiv 2012.04221. Any method trains the global model. Each vehicle also
    has a personalised model v_k, which takes H_k steps in every round in which the vehicle
    participates, on the same batches and with the learning rate η_p = r η_t:

        v_k ← v_k - η_p (∇loss(v_k) + λ (v_k - w_t))

    It begins at the first model that the vehicle receives (the authors begin at w_0). λ = 0 is
    local training, a large λ is the global model. Two gradients per step in all.
    """

    lam_personal: float = number(0.1, "[0, inf)", "(0: alone)", tuned=Range(0.01, 2.0))
    """λ; 0: local training."""
    rate_personal: float = number(
        1.0, "(0, inf)", fixed="the learning rate of both models is tuned"
    )
    """r, the personalised model's learning rate over η_t."""

    def client_state(self, model: Model) -> Rows:
        """Return zeros for v_k, and a flag that says that there is none yet."""
        return {
            "personal_model": torch.zeros(model.layout.size),
            "has_personal": torch.tensor(False),
        }

    def finish(
        self, client_state: Rows, plan: Rows, start: Start, deltas: Tensor
    ) -> tuple[Rows, Rows]:
        """Train v_k; one that would not be finite stays as it is."""
        here = self._vehicle_model(client_state, start.anchor)
        rules = (Tether(strength=self.lam_personal),) if self.lam_personal else ()
        plans: tuple[Rows, ...] = ({"broadcast": start.anchor},) if self.lam_personal else ()
        learning_rate = self.rate_personal * start.learning_rate
        vehicle_model = moved(
            here,
            start.train(PersonalTraining(rules, plans, here, learning_rate, start.steps)).double(),
        )
        finite = vehicle_model.isfinite().all(dim=-1)
        for row in (~finite).nonzero().flatten().tolist():
            log.warning(
                "the personalised model of %s is not finite and stays as it was",
                start.vehicles[row],
            )
        return {
            "personal_model": torch.where(finite[:, None], vehicle_model, here),
            "has_personal": client_state["has_personal"] | finite,
        }, {}

    def vehicle_model(self, client_state: Rows, start: Start) -> Tensor:
        """Return v_k; w_{t+1} for a vehicle without one."""
        return self._vehicle_model(client_state, start.anchor)

    def _vehicle_model(self, client_state: Rows, sent: Tensor) -> Tensor:
        """Return v_k [P, D]; the model `sent` where there is none."""
        return torch.where(
            client_state["has_personal"][:, None], client_state["personal_model"].to(sent), sent
        )


@dataclass(frozen=True, kw_only=True)
class Tether(LocalRule):
    """A pull toward the broadcast model, for steps that do not begin there."""

    strength: float = Companion.lam_personal
    """λ"""

    def gradient(self, gradient: Tensor, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """Return g + λ (v - w_t)."""
        return pull(gradient, weights, plan["broadcast"], self.strength)


@dataclass(frozen=True, kw_only=True)
class PersonalHead(LocalRule):
    """A local rule with a personal last layer.

    The head v_k is the model's last layer and stays in the vehicle; the server averages the body u,
    all layers before it. The global head stays at its initial value v_0. By `head_training`:

        u_{t+1} = u_t + Σ ω_k Δu_k
        first      τ_k = ⌈head_share · H_k⌉ steps of v_k with the body as it was sent,
                   then H_k - τ_k steps of the body with v_k as it is
        together   H_k steps of both
        never      H_k steps of the body against v_0, the same in all vehicles

    "first" is FedRep (Collins et al., ICML 2021, arXiv 2102.07078), "together" FedPer (Arivazhagan
    et al., arXiv 1912.00818, 2019), "never" FedBABU (Oh et al., ICLR 2022, arXiv 2106.06042), whose
    personalised models fine-tune both parts at the end. A vehicle without a head begins with v_0;
    before use it trains v_0 on its windows, with the body fixed. Weights that do not move keep
    their bits, whatever other rules do.
    """

    head_training: str = choice("first", "together", "never")
    """When the head is trained: "first", "together" with the body, or "never"."""
    head_share: float = number(0.1, "[0, 1)", "(0: the head never moves)", tuned=Range(0.02, 0.8))
    """Share of a round's steps that "first" gives the head; one is always left for the body."""
    head_steps_new: int = number(100, "[0, inf]")
    """Steps by which a vehicle that never participated trains a head before use."""

    acts_last = True
    looks_back = False

    def adapt(self, model: Model) -> Model:
        """Refuse a model without a declared last layer; return it unchanged."""
        if model.head_names is None:
            raise SettingError(
                f"A personal head is a model's last layer, and {type(model).__name__} does not "
                "declare it. Use an MLP, a GRU or an LSTM, or override head_names; 'ditto' works "
                "with any model."
            )
        return model

    def conflict(self, other: LocalRule) -> str:
        """Refuse rules that take the head for a shared part of the model."""
        name = type(other).__name__
        together = self.head_training == "together"
        if isinstance(other, Contrastive | Elastic):
            return f"{name} works on the whole model, and PersonalHead shares the body; use one."
        control = isinstance(other, ControlVariates) and other.option == 1
        if control or isinstance(other, FrozenMomentum):
            return (
                f"{name} uploads gradients of the whole model, and the head stays in the vehicle."
            )
        if together and other.server_half:
            return (
                f"{name} uploads the training of body and head together. Train the head apart: "
                "head_training = 'first'."
            )
        return ""

    @property
    def personalised(self) -> bool:
        """Return whether heads differ between vehicles."""
        return self.head_training != "never"

    def client_state(self, model: Model) -> Rows:
        """Return zeros for v_k, and a flag that says that there is none yet."""
        if not self.personalised:
            return {}
        size = int(_head(model).sum())
        return {"personal_head": torch.zeros(size), "has_head": torch.tensor(False)}

    def origin(self, client_state: Rows, start: Start) -> Origin | None:
        """Return the broadcast body with the vehicle's head, trained if "first" asks for it."""
        if not self.personalised:
            return None
        taken = torch.zeros_like(start.steps)
        if self.head_training == "first":
            # 0.1 · 30 is 3.0000000000000004 in floating point; that is 3 steps.
            share = torch.ceil(self.head_share * start.steps.double() - 1e-9).to(taken)
            taken = torch.minimum(share, start.steps - 1)
        return Origin(self._with_head(client_state, start, taken), {}, taken)

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the plan: which weights are the body's, [P, D]."""
        body = ~_head(start.model).to(start.anchor.device)
        return client_state, {"moving": body.expand_as(start.anchor)}

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """Return the gradient of the part that trains, 0 for all other weights."""
        if self.head_training == "together":
            return gradient
        return torch.where(plan["moving"], gradient, 0.0)

    def reply(self, deltas: Tensor, plan: Rows) -> Tensor:
        """Return Δu; the head's entries are 0."""
        return torch.where(plan["moving"], deltas, 0.0)

    def finish(
        self, client_state: Rows, plan: Rows, start: Start, deltas: Tensor
    ) -> tuple[Rows, Rows]:
        """Store the head."""
        if not self.personalised:
            return client_state, {}
        trained = (start.origin + deltas)[:, _head(start.model).to(deltas.device)]
        return {"personal_head": trained, "has_head": torch.ones_like(client_state["has_head"])}, {}

    def vehicle_model(self, client_state: Rows, start: Start) -> Tensor:
        """Return the present body with the vehicle's head; one without a head trains v_0 first."""
        new = torch.full_like(start.steps, self.head_steps_new)
        return self._with_head(client_state, start, torch.where(client_state["has_head"], 0, new))

    def _with_head(self, client_state: Rows, start: Start, steps: Tensor) -> Tensor:
        """Return the broadcast body with each vehicle's head after `steps` [P] of the head."""
        head = _head(start.model).to(start.anchor.device)
        weights = start.anchor.clone()
        vehicle_head = client_state["personal_head"].to(weights)
        weights[:, head] = torch.where(
            client_state["has_head"][:, None], vehicle_head, weights[:, head]
        )
        plan = {"moving": head.expand_as(weights)}
        alone = PersonalTraining((_HEAD_ALONE,), (plan,), weights, start.learning_rate, steps)
        return weights + start.train(alone)


def _head(model: Model) -> Tensor:
    """Return which weights [D] are the head's."""
    names = model.head_names or ()
    shapes = model.layout.shapes
    parts = [torch.full(shape, name in names).flatten() for name, shape in shapes.items()]
    return torch.cat(parts)


_HEAD_ALONE = PersonalHead()
"""The rule by which only a head trains."""
