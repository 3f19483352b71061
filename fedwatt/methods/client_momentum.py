"""FedCM: every local step mixes in the direction in which the fleet moved last.

Xu et al., arXiv 2106.10874. The server keeps m, 0 at first, and sends it with the model:

    local   u_h = α v_h + (1 - α) m_t
    server  w_{t+1} = w_t + Σ p_k Δ_k,    m_{t+1} = -Σ p_k Δ_k / Σ p_k η_t H_k

so that m is an exponential mean of the fleet's gradients: m_{t+1} = α ḡ_t + (1 - α) m_t. One common
divisor keeps m parallel to the model's step where vehicles take unequal numbers of steps. The first
round is FedAvg at the rate α η, so larger rates than FedAvg's are stable at first: tune both.
Vehicles keep nothing between rounds, which is its advantage over SCAFFOLD where they come rarely.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.methods.momentum import Momentum
from fedwatt.methods.ranges import Range
from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.methods.server import Replies, ServerRule, mean_delta, moved
from fedwatt.models import Model
from fedwatt.settings import number


@dataclass(frozen=True, kw_only=True)
class ClientMomentum(LocalRule):
    """The vehicle's part."""

    alpha_cm: float = number(0.1, "(0, 1]", "(1: no momentum)", tuned=Range(0.05, 1.0))
    """α, the share of the own gradient; 1 is FedAvg."""

    linear: ClassVar[bool] = False
    acts_last: ClassVar[bool] = True
    looks_back: ClassVar[bool] = False

    def uploads(self, model: Model) -> Rows:
        """η_t H_k."""
        return {"rate_times_steps": torch.zeros((), dtype=torch.float64)}

    def server_half(self) -> type[object]:
        """FedCM's server, which keeps m."""
        return FleetMomentum

    def conflict(self, other: LocalRule) -> str:
        """Two momenta would count every gradient twice."""
        if isinstance(other, Momentum):
            return "ClientMomentum is a momentum already; leave out 'momentum'."
        return ""

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """m_t."""
        return memory, {"fleet_momentum": start.broadcast["fleet_momentum"].to(start.anchor.dtype)}

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """α v + (1 - α) m."""
        return self.alpha_cm * gradient + (1 - self.alpha_cm) * plan["fleet_momentum"]

    def finish(self, memory: Rows, plan: Rows, start: Start, deltas: Tensor) -> tuple[Rows, Rows]:
        """η_t H_k [P], by which the server turns displacements into gradients."""
        return memory, {"rate_times_steps": start.learning_rate * start.steps.double()}


@dataclass(frozen=True, kw_only=True)
class FleetMomentum(ServerRule):
    """The server's part."""

    local_half: ClassVar[type[LocalRule]] = ClientMomentum
    sum_limits: ClassVar[Mapping[str, float]] = {"rate_times_steps": 2.0**20}
    adds_up: ClassVar[bool] = True  # both sums of m are weighted sums
    stale_reason: ClassVar[str] = (
        "replies to older models hold older momenta, which would count again"
    )

    def state(self, model: Model) -> Rows:
        """m = 0."""
        return {"m": torch.zeros(model.layout.size, dtype=torch.float64)}

    def broadcast(self, state: Rows) -> Rows:
        """m, as large as the model."""
        return {"fleet_momentum": state["m"]}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return the next model, and m from the same mean."""
        mean = mean_delta(replies)
        return {"m": -mean / replies.mean("rate_times_steps")}, moved(weights, mean)
