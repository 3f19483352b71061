"""Pull a vehicle's weights toward the broadcast model: FedProx, and FedProx with an adaptive μ.

Li et al., MLSys 2020, arXiv 1812.06127: each vehicle minimises F_k(w) + (μ/2)‖w - w_t‖², that is

    v_h = g_h + μ (w_h - w_t)

The pull is added to the gradient rather than to the loss: the same mathematics, cheaper, and
exactly nothing at μ = 0. As in the authors' code, vehicles are sampled uniformly and count by their
windows.
"""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.methods.server import Replies, ServerRule, mean_delta, moved
from fedwatt.models import Model
from fedwatt.settings import Range, number
from fedwatt.tables import PULL


def pull(gradient: Tensor, weights: Tensor, anchor: Tensor, strength: float | Tensor) -> Tensor:
    """Return g + μ (w - w_t), all [..., D]; `strength` is a number or [..., 1]."""
    return gradient + strength * (weights - anchor)


def pull_accumulation(steps: Tensor, learning_rate: float, mu: Tensor) -> Tensor:
    """Return ‖a_k‖₁ = (1 - (1 - η μ_k)^H_k) / (η μ_k) of H_k = `steps`, float64.

    >>> mu = torch.tensor([0.1, 0.0], dtype=torch.float64)
    >>> [round(a, 10) for a in pull_accumulation(torch.tensor([11, 11]), 0.15, mu).tolist()]
    [10.2110342916, 11.0]
    """
    steps, shrink = steps.double(), learning_rate * mu.double()
    return torch.where(shrink == 0, steps, (1 - (1 - shrink) ** steps) / shrink)


@dataclass(frozen=True, kw_only=True)
class Proximal(LocalRule):
    """FedProx's local rule with the same μ for every vehicle."""

    mu: float = number(0.01, "[0, inf)", "(0 is FedAvg)", tuned=Range(1e-3, 1.0))

    def gradient(self, gradient: Tensor, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """Return g + μ (w - w_t)."""
        return pull(gradient, weights, anchor, self.mu)

    def accumulation(self, start: Start, plan: Rows) -> Tensor:
        """Return ‖a_k‖₁ with the pull μ."""
        mu = torch.tensor(self.mu, dtype=torch.float64)
        return pull_accumulation(start.steps, start.learning_rate, mu)


@dataclass(frozen=True, kw_only=True)
class PlannedPull(LocalRule):
    """A pull whose strength per vehicle, "pull" [P] of the plan, is set by `begin`."""

    def gradient(self, gradient: Tensor, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """Return g + μ_k (w - w_t)."""
        return pull(gradient, weights, anchor, plan["pull"][:, None].to(gradient.dtype))

    def accumulation(self, start: Start, plan: Rows) -> Tensor:
        """Return ‖a_k‖₁ with the pulls μ_k."""
        return pull_accumulation(start.steps, start.learning_rate, plan["pull"])


@dataclass(frozen=True, kw_only=True)
class BroadcastPull(PlannedPull):
    """The local rule of adaptive μ: a pull of the server's strength, and an upload of the loss."""

    loss_batch: int = number(128, "[1, inf]", "window")
    """Windows of F_k(w_t); a vehicle with fewer uses all of them."""

    records = (PULL,)
    server_half = "AdaptiveMu"

    def uploads(self, model: Model) -> Rows:
        """Return a template of the upload F_k(w_t)."""
        return {"loss_before": torch.zeros((), dtype=torch.float64)}

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the plan: μ_t [P] and F_k(w_t) [P]."""
        losses = []
        for row, weights in enumerate(start.origin):
            batch = start.probe_batch(row, self.loss_batch, "loss batch")
            prediction = start.model.predict(weights, batch.windows)
            losses.append(start.loss(prediction, batch.labels).mean().double())
        plan = {"pull": start.broadcast["mu"].flatten(), "loss_before": torch.stack(losses)}
        return client_state, plan


@dataclass(frozen=True, kw_only=True)
class AdaptiveMu(ServerRule):
    """The server rule of adaptive μ: averaging, and the next μ.

    From appendix C.3.3 of the same paper. With f_t = Σ ω_k F_k(w_t), each vehicle's loss on a batch
    of its windows at the broadcast model:

        f_t ≥ f_{t-1}    μ ← min(μ_max, μ + s),  falls = 0
        f_t < f_{t-1}    falls += 1;  at `patience`  μ ← max(0, μ - s),  falls = 0

    f_t arrives with the updates of round t, so the new μ counts from round t+1 on. With few
    participants f_t and f_{t-1} are losses of different vehicles, and their difference is mostly
    that.
    """

    mu_start: float = number(0.0, "[0, inf)", fixed="0 for similar vehicles, as in the paper")
    mu_step: float = number(0.1, "[0, inf)", tuned=Range(0.01, 0.3))
    """s; 0 is FedProx with μ = `mu_start`."""
    mu_max: float = number(1.0, "[0, inf)", fixed="the authors' value")
    patience: int = number(5, "[1, inf]", "round")

    local_half = BroadcastPull
    adds_up = True  # f_t is a weighted sum, too
    stale_reason = "losses of different models would be compared as if they were of one"

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "mu_start", self.mu_start <= self.mu_max, "in [0, mu_max]")

    def state(self, model: Model) -> Rows:
        """Return μ, f_{t-1} = ∞ and -1 consecutive falls: the first fall does not count."""
        values = {"mu": self.mu_start, "loss": inf, "falls": -1.0}
        return {name: torch.tensor([v], dtype=torch.float64) for name, v in values.items()}

    def broadcast(self, state: Rows) -> Rows:
        """Return μ, [1]."""
        return {"mu": state["mu"]}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return the mean model, and μ for the next round."""
        loss = replies.mean("loss_before")
        fell = loss < state["loss"]
        falls = torch.where(fell, state["falls"] + 1, 0.0)
        enough = falls >= self.patience
        mu = torch.where(
            fell, state["mu"] - self.mu_step * enough.double(), state["mu"] + self.mu_step
        )
        next_state = {
            "mu": mu.clamp(0, self.mu_max),
            "loss": loss,
            "falls": torch.where(enough, 0, falls),
        }
        return next_state, moved(weights, mean_delta(replies))
