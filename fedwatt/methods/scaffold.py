"""SCAFFOLD: control variates that correct local steps for the drift of each vehicle.

Karimireddy et al., ICML 2020, arXiv 1910.06378. The server has a control c, vehicle k a control
c_k, both 0 at first:

    local     v_h = g_h - c_k + c
    option 2  c_k⁺ = c_k - c + (w_t - w_{H_k}) / (H_k η_t)     default
    option 1  c_k⁺ = the vehicle's gradient at w_t on one batch
    server    w_{t+1} = w_t + η_g Σ ω_k Δ_k
              c ← c + Σ_{S_t} q_k (c_k⁺ - c_k)

with ω_k = n_k/n_t, q_k = n_k/n (weighted by windows) or ω_k = 1/|S_t|, q_k = 1/K (uniform, as
published). The sum for c divides by the whole population, not by the participants, so that
c = Σ_k q_k c_k over all vehicles after every round. Where momentum or a pull weighs the gradients
of a round unequally, ‖a_k‖₁ stands for H_k, so that option 2 stays a mean of gradients. c_k is
stale in a vehicle that rarely participates.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedwatt.methods.rule import LocalRule, Rows, Start, gradients_at_origin
from fedwatt.methods.server import Replies, ServerRule, moved, weighted_sum
from fedwatt.models import Model
from fedwatt.settings import choice, number


@dataclass(frozen=True, kw_only=True)
class ControlVariates(LocalRule):
    """SCAFFOLD's local rule."""

    option: int = choice(1, 2, default=2)
    """The update of c_k: 1 by another gradient, 2 from the steps taken."""
    control_batch: int = number(1024, "[1, inf]", "window")
    """Windows of option 1's gradient; a vehicle with fewer uses all of them."""

    server_half = "Scaffold"

    def client_state(self, model: Model) -> Rows:
        """Return c_k = 0."""
        return {"control": torch.zeros(model.layout.size)}

    def uploads(self, model: Model) -> Rows:
        """Return a template of the upload c_k⁺ - c_k."""
        return {"control_change": torch.zeros(model.layout.size)}

    @property
    def divides_by_accumulation(self) -> str:
        """Option 2, which takes the mean of the gradients from the displacement."""
        return "SCAFFOLD's option 2" if self.option == 2 else ""

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the plan: b_k = c - c_k, the correction of every step of the round."""
        vehicle_control = client_state["control"].to(start.anchor.dtype)
        plan = {
            "control": vehicle_control,
            "correction": start.broadcast["server_control"] - vehicle_control,
        }
        if self.option == 1:
            plan["fresh_control"] = gradients_at_origin(start, self.control_batch, "control batch")
        return client_state, plan

    def gradient(self, gradient: Tensor, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """Return g + (c - c_k)."""
        return gradient + plan["correction"]

    def finish(
        self, client_state: Rows, plan: Rows, start: Start, deltas: Tensor
    ) -> tuple[Rows, Rows]:
        """Store c_k⁺ and upload its change."""
        if self.option == 1:
            fresh = plan["fresh_control"]
        else:
            added = start.steps if start.accumulation is None else start.accumulation
            taken = start.learning_rate * added.to(deltas.dtype)
            fresh = -plan["correction"] - deltas / taken[:, None]
        return {"control": fresh}, {"control_change": fresh - plan["control"]}


@dataclass(frozen=True, kw_only=True)
class Scaffold(ServerRule):
    """SCAFFOLD's server rule."""

    server_learning_rate: float = number(
        1.0, "(0, inf)", fixed="1, as the authors recommend"
    )  # η_g
    weighting: str = choice("windows", "uniform")

    local_half = ControlVariates
    adds_up = True  # both the model and c move by weighted sums of the replies
    # c_k⁺ - c_k is the change from the c that a vehicle was sent.
    stale_reason = "buffered control variates would be stale"

    @property
    def counts_alike(self) -> bool:
        """True in the form of its paper, which weights vehicles equally."""
        return self.weighting == "uniform"

    def state(self, model: Model) -> Rows:
        """Return c = 0."""
        return {"control": torch.zeros(model.layout.size, dtype=torch.float64)}

    def broadcast(self, state: Rows) -> Rows:
        """Return c [D]."""
        return {"server_control": state["control"]}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return the next model and control."""
        if self.weighting == "windows":
            shares = replies.shares
            of_all = replies.windows / replies.population_windows
        else:
            shares = torch.full_like(replies.windows, 1 / len(replies.windows))
            of_all = torch.full_like(replies.windows, 1 / replies.population)
        control = state["control"] + weighted_sum(of_all, replies.uploads["control_change"])
        step = self.server_learning_rate * weighted_sum(shares, replies.deltas)
        return {"control": control}, moved(weights, step)
