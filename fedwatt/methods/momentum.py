"""Momentum of local steps: inside a round (heavy ball), FedCM, and MimeLite."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.methods.rule import LocalRule, Rows, Start, gradients_at_origin
from fedwatt.methods.server import Replies, ServerRule, mean_delta, moved, weighted_sum
from fedwatt.models import Model
from fedwatt.settings import Range, number


@dataclass(frozen=True, kw_only=True)
class Momentum(LocalRule):
    """Local SGD with momentum ρ (heavy ball); each round starts from rest.

    The buffer is never stored: it is (w_{h-1} - w_h) / η_t.

        buffer ← ρ buffer + v_h,    w_{h+1} = w_h - η_t buffer
    """

    rho: float = number(0.9, "[0, 1)", tuned=Range(0.0, 0.95, log=False))

    looks_back = True

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the plan: the learning rate, from which the last step gives the buffer."""
        rate = torch.full_like(start.steps, start.learning_rate, dtype=torch.float64)
        return client_state, {"momentum_rate": rate}

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """Return v + ρ buffer."""
        if previous is None:
            return gradient
        rate = plan["momentum_rate"][:, None].to(weights)
        return gradient + self.rho * (previous - weights) / rate

    def accumulation(self, start: Start, plan: Rows) -> Tensor:
        """Return ‖a_k‖₁ of momentum."""
        return momentum_accumulation(start.steps, self.rho)


def momentum_accumulation(steps: Tensor, rho: float) -> Tensor:
    """Return ‖a_k‖₁ = Σ_{j=1..H_k} (1 - ρ^j) / (1 - ρ) of H_k = `steps`, float64.

    >>> round(momentum_accumulation(torch.tensor([11]), 0.9).item(), 10)
    48.2429536481
    """
    steps = steps.double()
    return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)


@dataclass(frozen=True, kw_only=True)
class MixedMomentum(LocalRule):
    """A local rule that mixes the server's momentum into every step."""

    linear = False
    acts_last = True

    def conflict(self, other: LocalRule) -> str:
        """Refuse a second momentum; `Fractional`, which would scale this one, refuses it."""
        if isinstance(other, Momentum):
            return f"{type(self).__name__} is a momentum already; leave out Momentum."
        return ""

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the plan: m_t [P, D]."""
        momentum = start.broadcast["fleet_momentum"].to(start.anchor.dtype)
        return client_state, {"fleet_momentum": momentum}


@dataclass(frozen=True, kw_only=True)
class MomentumServer(ServerRule):
    """A server rule with a momentum m, which it sends with the model."""

    def state(self, model: Model) -> Rows:
        """Return m = 0."""
        return {"m": torch.zeros(model.layout.size, dtype=torch.float64)}

    def broadcast(self, state: Rows) -> Rows:
        """Return m [D]."""
        return {"fleet_momentum": state["m"]}


@dataclass(frozen=True, kw_only=True)
class ClientMomentum(MixedMomentum):
    """FedCM's local rule: steps that mix in the momentum m that the server sent.

    Xu et al., arXiv 2106.10874, 2021:

        u_h = α v_h + (1 - α) m_t
    """

    alpha_cm: float = number(0.1, "(0, 1]", "(1: no momentum)", tuned=Range(0.05, 1.0))
    """α, the share of the vehicle's gradient; 1 is FedAvg."""

    looks_back = False
    server_half = "FleetMomentum"

    def uploads(self, model: Model) -> Rows:
        """Return a template of the upload η_t H_k."""
        return {"rate_times_steps": torch.zeros((), dtype=torch.float64)}

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """Return α v + (1 - α) m."""
        return self.alpha_cm * gradient + (1 - self.alpha_cm) * plan["fleet_momentum"]

    def finish(
        self, client_state: Rows, plan: Rows, start: Start, deltas: Tensor
    ) -> tuple[Rows, Rows]:
        """Upload η_t H_k [P], by which the server turns displacements into gradients."""
        return client_state, {"rate_times_steps": start.learning_rate * start.steps.double()}


@dataclass(frozen=True, kw_only=True)
class FleetMomentum(MomentumServer):
    """FedCM's server rule: averaging, and m, 0 at first, sent with the model.

    On the server

        w_{t+1} = w_t + Σ ω_k Δ_k,    m_{t+1} = -Σ ω_k Δ_k / Σ ω_k η_t H_k

    so that m is an exponential mean of the fleet's gradients: m_{t+1} = α ḡ_t + (1 - α) m_t. One
    common divisor keeps m parallel to the model's step where vehicles take unequal numbers of
    steps. The first round is FedAvg with the learning rate α η, so larger ones than FedAvg's are
    stable at first: tune both. Vehicles have no client state, an advantage over SCAFFOLD where they
    rarely participate.
    """

    local_half = ClientMomentum
    sum_limits: ClassVar[Mapping[str, float]] = {"rate_times_steps": 2.0**20}
    adds_up = True  # both sums of m are weighted sums
    stale_reason = "updates of older models contain older momenta, which would count again"

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return the mean model, and m from the same mean."""
        mean = mean_delta(replies)
        return {"m": -mean / replies.mean("rate_times_steps")}, moved(weights, mean)


@dataclass(frozen=True, kw_only=True)
class FrozenMomentum(MixedMomentum):
    """MimeLite's local rule: the momentum m of the server, constant during a round.

    Karimireddy et al., NeurIPS 2021, arXiv 2008.03606, with SGD and momentum:

        u_h = (1 - β) v_h + β m_t

    The vehicle uploads G_k = ∇F_k(w_t), over `gradient_batch` of its windows.
    """

    beta: float = number(0.9, "[0, 1)", "(0: no momentum)", tuned=Range(0.0, 0.99, log=False))
    """β; 0 is FedAvg."""
    gradient_batch: int = number(1024, "[1, inf]", "window")
    """Windows of G_k; a vehicle with fewer uses all of them."""

    looks_back = False
    server_half = "MimeServer"

    def uploads(self, model: Model) -> Rows:
        """Return a template of the upload G_k."""
        return {"full_gradient": torch.zeros(model.layout.size)}

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the plan: m_t and G_k, both [P, D]."""
        client_state, plan = super().begin(client_state, start)
        fresh = gradients_at_origin(start, self.gradient_batch, "mime batch")
        return client_state, plan | {"full_gradient": fresh}

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """Return (1 - β) v + β m."""
        return (1 - self.beta) * gradient + self.beta * plan["fleet_momentum"]


@dataclass(frozen=True, kw_only=True)
class MimeServer(MomentumServer):
    """MimeLite's server rule: averaging, and m, 0 at first, from gradients at the broadcast model.

    On the server

        w_{t+1} = w_t + η_g Σ ω_k Δ_k,    m_{t+1} = (1 - β) Σ ω_k G_k + β m_t

    m is an exponential mean, as published; where an implementation has g + β m instead, its
    learning rate is 1/(1 - β) times that here. Full Mime, which corrects every step by a second
    gradient, is not included.
    """

    beta: float = number(0.9, "[0, 1)", tuned=Range(0.0, 0.99, log=False))
    server_learning_rate: float = number(
        1.0, "(0, inf)", fixed="the local learning rate is tuned instead"
    )
    """η_g"""

    local_half = FrozenMomentum
    adds_up = True  # both the model and m move by weighted sums
    stale_reason = "gradients of older models would enter the momentum of the present one"

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return the next model and momentum."""
        fresh = weighted_sum(replies.shares, replies.uploads["full_gradient"])
        m = (1 - self.beta) * fresh + self.beta * state["m"]
        return {"m": m}, moved(weights, self.server_learning_rate * mean_delta(replies))
