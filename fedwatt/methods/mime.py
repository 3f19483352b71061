"""MimeLite: local steps with a frozen server momentum, renewed by gradients at the broadcast model.

Karimireddy et al., NeurIPS 2021, with SGD and momentum as its base. The server keeps m, 0 at first:

    local   u_h = (1 - β) v_h + β m_t
    up      Δ_k and G_k = ∇F_k(w_t), over `gradient_batch` windows of the vehicle
    server  w_{t+1} = w_t + η_g Σ p_k Δ_k,    m_{t+1} = (1 - β) Σ p_k G_k + β m_t

m is an exponential mean, as published; where an implementation has g + β m instead, its rate is
1/(1 - β) times ours. Full Mime, which corrects every step by a second gradient, is not here.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.methods.fractional import Fractional
from fedwatt.methods.momentum import Momentum
from fedwatt.methods.ranges import Range
from fedwatt.methods.rule import LocalRule, Rows, Start, gradients_at_origin
from fedwatt.methods.server import Replies, ServerRule, mean_delta, moved, weighted_sum
from fedwatt.models import Model
from fedwatt.settings import number


@dataclass(frozen=True, kw_only=True)
class FrozenMomentum(LocalRule):
    """The vehicle's part."""

    beta: float = number(0.9, "[0, 1)", "(0: no momentum)", tuned=Range(0.0, 0.99, log=False))
    """β; 0 is FedAvg."""
    gradient_batch: int = number(1024, "[1, inf]", "window")
    """Windows of G_k; a vehicle with fewer uses all it has."""

    linear: ClassVar[bool] = False
    acts_last: ClassVar[bool] = True
    looks_back: ClassVar[bool] = False

    def uploads(self, model: Model) -> Rows:
        """G_k."""
        return {"full_gradient": torch.zeros(model.layout.size)}

    def server_half(self) -> type[object]:
        """MimeLite's server, which keeps m."""
        return MimeServer

    def conflict(self, other: LocalRule) -> str:
        """Return a second momentum, or a preconditioner that would scale the frozen one as well."""
        if isinstance(other, Momentum | Fractional):
            return f"MimeLite's momentum is frozen for a round; leave out {type(other).__name__}."
        return ""

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """m_t and G_k, both [P, D]."""
        fresh = gradients_at_origin(start, self.gradient_batch, "mime batch")
        frozen = start.broadcast["frozen_momentum"].to(start.anchor.dtype)
        return memory, {"frozen_momentum": frozen, "full_gradient": fresh}

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """(1 - β) v + β m."""
        return (1 - self.beta) * gradient + self.beta * plan["frozen_momentum"]


@dataclass(frozen=True, kw_only=True)
class MimeServer(ServerRule):
    """The server's part."""

    beta: float = number(0.9, "[0, 1)", tuned=Range(0.0, 0.99, log=False))
    server_learning_rate: float = number(
        1.0, "(0, inf)", fixed="the local rate is tuned in its place"
    )
    """η_g"""

    local_half: ClassVar[type[LocalRule]] = FrozenMomentum
    adds_up: ClassVar[bool] = True  # both the model and m move by weighted sums
    stale_reason: ClassVar[str] = (
        "gradients of older models would enter the momentum of the present one"
    )

    def state(self, model: Model) -> Rows:
        """m = 0."""
        return {"m": torch.zeros(model.layout.size, dtype=torch.float64)}

    def broadcast(self, state: Rows) -> Rows:
        """m, as large as the model."""
        return {"frozen_momentum": state["m"]}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return the next model and momentum."""
        fresh = weighted_sum(replies.shares, replies.uploads["full_gradient"])
        m = (1 - self.beta) * fresh + self.beta * state["m"]
        return {"m": m}, moved(weights, self.server_learning_rate * mean_delta(replies))
