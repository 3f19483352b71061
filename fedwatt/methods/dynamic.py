"""FedDyn: dynamic regularisation, by which local optima approach the global one.

Acar et al., ICLR 2021, arXiv 2111.04263, in the form of the authors' code (α cancels on the
server). Vehicle k has the state h_k, the server h̄ = (1/K) Σ_k h_k, all 0 at first:

    local    v_h = g_h + α_k (w_h - w_t + h_k)
    vehicle  h_k ← h_k + Δ_k
    server   h̄ ← h̄ + (1/K) Σ_{S_t} Δ_k
             w_{t+1} = w_t + (1/|S_t|) Σ_{S_t} Δ_k + h̄

The broadcast ("cloud") model is the one that is evaluated. To minimise the loss weighted by
windows, α_k = α n/(K n_k) while the averages stay uniform; K n_k/n is kept in [0.1, 10], since a
tiny vehicle would otherwise be pulled so hard that its steps diverge. A small α or rare
participation can diverge. α → 0 is not FedAvg: h̄ keeps adding up.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedwatt.methods.proximal import pull
from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.methods.server import Replies, ServerRule, moved
from fedwatt.models import Model
from fedwatt.settings import Range, choice, number
from fedwatt.tables import PULL


@dataclass(frozen=True, kw_only=True)
class Dynamic(LocalRule):
    """FedDyn's local rule."""

    alpha_dyn: float = number(0.1, "[0, inf)", tuned=Range(1e-3, 1e-1))
    """α, the strength of the regulariser."""
    weighting: str = choice("windows", "uniform")

    records = (PULL,)
    server_half = "DynamicServer"

    def client_state(self, model: Model) -> Rows:
        """Return h_k = 0."""
        return {"h": torch.zeros(model.layout.size)}

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the plan: α_k [P] and α_k h_k [P, D]."""
        alpha = torch.full_like(start.relative_size, self.alpha_dyn)
        if self.weighting == "windows":
            alpha = alpha / start.relative_size.clamp(0.1, 10)
        alpha = alpha.to(start.anchor.dtype)
        linear = alpha[:, None] * client_state["h"].to(start.anchor.dtype)
        return client_state, {"pull": alpha, "linear": linear}

    def gradient(self, gradient: Tensor, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """Return g + α_k (w - w_t) + α_k h_k."""
        return pull(gradient, weights, anchor, plan["pull"][:, None]) + plan["linear"]

    def finish(
        self, client_state: Rows, plan: Rows, start: Start, deltas: Tensor
    ) -> tuple[Rows, Rows]:
        """Update h_k ← h_k + Δ_k."""
        return {"h": client_state["h"] + deltas}, {}


@dataclass(frozen=True, kw_only=True)
class DynamicServer(ServerRule):
    """FedDyn's server rule."""

    correction: bool = True
    """Whether h̄ is added to the mean; without it and with α = 0 this is uniform FedAvg."""

    local_half = Dynamic
    adds_up = True  # only the sum of the displacements enters
    # Vehicles add Δ_k to h_k in the round in which the server adds it to h̄.
    stale_reason = "its h̄ is a mean of sums that all vehicles built against one common model"

    @property
    def counts_alike(self) -> bool:
        """Always true: the numbers of windows are in the α_k already."""
        return True

    def state(self, model: Model) -> Rows:
        """Return h̄ = 0."""
        return {"mean_h": torch.zeros(model.layout.size, dtype=torch.float64)}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return the model w_t plus the mean update plus h̄."""
        total = replies.deltas.double().sum(dim=0)
        mean_h = state["mean_h"] + total / replies.population
        step = total / len(replies.deltas)
        return {"mean_h": mean_h}, moved(weights, step + mean_h if self.correction else step)
