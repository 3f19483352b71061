"""MimeLite: local steps with a frozen server momentum, renewed by gradients at the broadcast model.

Karimireddy et al., NeurIPS 2021, with SGD and momentum as its base. The server keeps m, 0 at first:

    local   u_h = (1 - β) v_h + β m_t
    up      Δ_k and G_k = ∇F_k(w_t), over `gradient_batch` windows of the vehicle
    server  w_{t+1} = w_t + η_g Σ p_k Δ_k,    m_{t+1} = (1 - β) Σ p_k G_k + β m_t

m is an exponential mean, as published; where an implementation has g + β m instead, its rate is
1/(1 - β) times ours. Full Mime, which corrects every step by a second gradient, is not here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.methods.fractional import Fractional
from fedwatt.methods.momentum import Momentum
from fedwatt.methods.ranges import Range
from fedwatt.methods.rule import LocalRule, Rows, Start, gradient_at_origin
from fedwatt.methods.server import Replies, ServerRule, mean_delta, moved, weighted_sum
from fedwatt.models import Model


@dataclass(frozen=True, kw_only=True)
class FrozenMomentum(LocalRule):
    """The vehicle's part."""

    beta: float = 0.9
    """β; 0 is FedAvg."""
    gradient_batch: int = 1024
    """Windows of G_k; a vehicle with fewer uses all it has."""

    linear: ClassVar[bool] = False
    acts_last: ClassVar[bool] = True
    ranges: ClassVar[Mapping[str, Range]] = {"beta": Range(0.0, 0.99, log=False)}

    def __post_init__(self) -> None:
        check(self, "beta", 0 <= self.beta < 1, "in [0, 1) (0: no momentum)")
        check(self, "gradient_batch", self.gradient_batch >= 1, "at least 1 window")

    def uploads(self, model: Model) -> Rows:
        """G_k."""
        return {"full_gradient": torch.zeros(model.layout.size)}

    def server_half(self) -> type[object]:
        """MimeLite's server, which keeps m."""
        return MimeServer

    def conflict(self, other: LocalRule) -> str:
        """A second momentum, or a preconditioner that would scale the frozen one as well."""
        if isinstance(other, Momentum | Fractional):
            return f"MimeLite's momentum is frozen for a round; leave out {type(other).__name__}."
        return ""

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """m_t and G_k, both [P, D]."""
        rows = range(len(start.anchor))
        fresh = [gradient_at_origin(start, row, self.gradient_batch, "mime batch") for row in rows]
        frozen = start.broadcast["frozen_momentum"].to(start.anchor.dtype)
        return memory, {"frozen_momentum": frozen, "full_gradient": torch.stack(fresh)}

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """(1 - β) v + β m."""
        return (1 - self.beta) * gradient + self.beta * plan["frozen_momentum"]

    def finish(self, memory: Rows, plan: Rows, start: Start, deltas: Tensor) -> tuple[Rows, Rows]:
        """G_k."""
        return memory, {"full_gradient": plan["full_gradient"]}


@dataclass(frozen=True, kw_only=True)
class MimeServer(ServerRule):
    """The server's part."""

    beta: float = 0.9
    server_rate: float = 1.0
    """η_g"""

    local_half: ClassVar[type[LocalRule]] = FrozenMomentum
    ranges: ClassVar[Mapping[str, Range]] = FrozenMomentum.ranges
    fixed: ClassVar[Mapping[str, str]] = {"server_rate": "the local rate is tuned in its place"}
    adds_up: ClassVar[bool] = True  # both the model and m move by weighted sums
    stale_reason: ClassVar[str] = (
        "gradients of older models would enter the momentum of the present one"
    )

    def __post_init__(self) -> None:
        check(self, "beta", 0 <= self.beta < 1, "in [0, 1)")
        check(self, "server_rate", 0 < self.server_rate < inf, "above 0 and finite")

    def state(self, model: Model) -> Rows:
        """m = 0."""
        return {"m": torch.zeros(model.layout.size, dtype=torch.float64)}

    def broadcast(self, state: Rows) -> Rows:
        """m, as large as the model."""
        return {"frozen_momentum": state["m"]}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """The next model and momentum."""
        shares = replies.windows / replies.windows.sum()
        fresh = weighted_sum(shares, replies.uploads["full_gradient"])
        m = (1 - self.beta) * fresh + self.beta * state["m"]
        return {"m": m}, moved(weights, self.server_rate * mean_delta(replies))
