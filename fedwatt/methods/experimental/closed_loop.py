"""L2: a closed loop on the pull, whose strength follows what a vehicle gets back from the fleet.

Unpublished. On windows that are the same in every round, vehicle k keeps from its last round s the
loss before and after its local steps, F⁰ = F_k(w_s) and F¹ = F_k(w_k). In its next round t it
computes the transfer ratio q_k, the share of its local gain that the fleet's model has kept: 1 all,
0 nothing, below 0 harm. The controller acts on the pull's logarithm, μ = μ_0 eˣ:

    q_k = clip((F⁰ - F_k(w_t)) / (F⁰ - F¹), -1, 1)    where F⁰ - F¹ > 1e-12 F⁰
    m ← β m + (1 - β) q_k,    c ← β c + (1 - β)
    e = q* - m/c,    e ← sign(e) max(0, |e| - ε)
    x ← clip(x + clip(κ e, ±ln 1.5), ln μ_min/μ_0, ln μ_max/μ_0)

For q = q* + g (ln μ - x*) with g ≥ 0 the loop is stable if 0 < κ g < 2 (1 + β)/(1 - β); less where
ratios are late. Without a ratio nothing moves. Where the mean loss is 1.5 times its lowest for 3
updates, the pull goes back to μ_0 and the loop pauses for 10. After 10 updates at μ_max with e > 0
the loop is saturated, and holds.

Result: nothing on measured energy (-0.2 to +0.5 Wh beside FedAvg on VED, none of it significant),
and 0.8 Wh less on the synthetic fleet with elevation, where several methods gain. Near a stationary
point q goes to 0 whatever the pull, so the loop raises the pull to its limit, about as a falling
learning rate would.
"""

from dataclasses import dataclass
from math import inf, log

import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.methods.proximal import PlannedPull
from fedwatt.methods.rule import LocalRule, Rows, Start, mean_losses
from fedwatt.models import Model
from fedwatt.settings import Range, number
from fedwatt.tables import PULL, Column

SAFE = 0.5
"""μ_max is this number over the learning rate, so that η (L + μ) < 2 wherever η L < 1.5."""
FASTEST = log(1.5)
"""Largest change of ln μ in an update."""
ALARM = 1.5
ALARMS = 3
PAUSE = 10
FUTILE = 10
WORKS = 0.0
PAUSES = 1.0
SATURATED = 2.0
"""Conditions of a loop."""
NAMES = ("log", "ratio", "weight", "loss", "lowest", "alarms", "pause", "at_limit")
"""State of a loop, each with the prefix "loop_" in a vehicle."""
ZERO = torch.tensor(0.0).double()

TRANSFER = Column("transfer", float, "q_k, the share of its last gain that it got back")
LOOP = Column("loop", float, "0: the vehicle's loop works, 1: it pauses, 2: it is saturated")


def transfer_ratio(before: Tensor, after: Tensor, now: Tensor) -> Tensor:
    """Return q of F⁰, F¹ and F(w_t), element by element; NaN where there is none.

    >>> before, after = torch.tensor([4.0, 4.0, 1.0]), torch.tensor([2.0, 2.0, 1.0])
    >>> transfer_ratio(before, after, torch.tensor([3.0, 9.0, 0.5])).tolist()
    [0.5, -1.0, nan]
    """
    gain = before - after
    ratio = ((before - now) / gain).clamp(-1, 1)
    return torch.where(gain > 1e-12 * before, ratio, torch.nan)


@dataclass(frozen=True, kw_only=True)
class Gains(LocalRule):
    """Keeps a vehicle's loss before and after the steps of its last round."""

    transfer_batch: int = number(128, "[1, inf]", "window")
    """Windows of F_k; a vehicle with fewer uses all it has."""

    begin_timed_as = "probe"

    def client_state(self, model: Model) -> Rows:
        """Return F⁰ and F¹; both 0 before the first round, which is no gain."""
        return {"gain_from": ZERO, "gain_to": ZERO}

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return q_k of the last round, and F_k(w_t), at which this one begins; both [P]."""
        now = self.losses(start.origin, start)
        ratio = transfer_ratio(client_state["gain_from"], client_state["gain_to"], now)
        return client_state, {"transfer": ratio, "gain_from": now}

    def losses(self, weights: Tensor, start: Start) -> Tensor:
        """Return the loss F_k of each vehicle [P] at `weights` [P, D]."""
        return mean_losses(start, weights, self.transfer_batch, "transfer batch")

    def finish(
        self, client_state: Rows, plan: Rows, start: Start, deltas: Tensor
    ) -> tuple[Rows, Rows]:
        """Keep the losses before and after this round's steps."""
        with torch.no_grad():
            after = self.losses(start.origin + deltas, start)
        return client_state | {"gain_from": plan["gain_from"], "gain_to": after}, {}


@dataclass(frozen=True, kw_only=True)
class TransferProximal(PlannedPull, Gains):
    """Every vehicle controls its own pull, and uses it in the same round."""

    pull_start: float = number(0.1, "(0, inf)", tuned=Range(1e-2, 1.0))
    """μ_0"""
    pull_min: float = number(1e-3, "(0, inf)", fixed="a safeguard")
    """μ_min"""
    pull_max: float = number(inf, "(0, inf]", fixed="a safeguard")
    """μ_max, where ½ over the learning rate is not less."""
    transfer_target: float = number(0.5, "[-1, 1]", tuned=Range(0.1, 0.8, log=False))
    """q*"""
    control_gain: float = number(0.5, "[0, inf)", "(0: the pull stays)", fixed="stability sets it")
    """κ; 0 leaves the pull at μ_0."""
    dead_band: float = number(0.1, "[0, inf)", fixed="a safeguard")
    """ε"""
    control_keep: float = number(0.5, "[0, 1)", fixed="stability sets it")
    """β, of the means of ratio and loss."""

    records = (PULL, TRANSFER, LOOP)

    def __post_init__(self) -> None:
        super().__post_init__()
        start = f"pull_start={self.pull_start:g}"
        check(self, "pull_min", self.pull_min <= self.pull_start, f"in (0, {start}]")
        check(self, "pull_max", self.pull_max >= self.pull_start, f"at least {start}")

    def client_state(self, model: Model) -> Rows:
        """Return the last round's losses, and the loop's state."""
        return super().client_state(model) | {f"loop_{n}": v for n, v in self.loop_state().items()}

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return q_k and the pulls μ_k [P] that follow from it."""
        client_state, plan = super().begin(client_state, start)
        highest = min(self.pull_max, SAFE / start.learning_rate)
        state = {name: client_state[f"loop_{name}"] for name in NAMES}
        state = self.updated(state, plan["transfer"], plan["gain_from"], highest)
        plan |= {"pull": self.pull(state), "loop": self.condition(state)}
        return client_state | {f"loop_{name}": value for name, value in state.items()}, plan

    def loop_state(self) -> Rows:
        """Return a loop's state before the first update, without an axis of vehicles."""
        return dict.fromkeys(NAMES, ZERO) | {"lowest": ZERO + torch.inf}

    def pull(self, state: Rows) -> Tensor:
        """Return μ; exactly μ_0 until something has moved it."""
        return self.pull_start * state["log"].exp()

    def condition(self, state: Rows) -> Tensor:
        """Return whether the loop works, pauses or is saturated."""
        saturated = torch.where(state["at_limit"] >= FUTILE, SATURATED, WORKS)
        return torch.where(state["pause"] > 0, PAUSES, saturated)

    def updated(self, state: Rows, ratio: Tensor, loss: Tensor, highest: float) -> Rows:
        """Return the state after a `ratio` (NaN: none) and a training `loss`; `highest` is μ_max.

        Everything is element by element, [P].
        """
        keep = self.control_keep
        log_pull = state["log"]
        finite = loss.isfinite()
        mean = torch.where(state["lowest"].isinf(), loss, keep * state["loss"] + (1 - keep) * loss)
        mean = torch.where(finite, mean, state["loss"])
        lowest = torch.where(finite, torch.minimum(state["lowest"], mean), state["lowest"])
        alarms = torch.where(finite & (mean > ALARM * lowest), state["alarms"] + 1, 0.0)
        tripped = alarms >= ALARMS
        works = ratio.isfinite() & (state["pause"] == 0) & ~tripped
        m = torch.where(works, keep * state["ratio"] + (1 - keep) * ratio, state["ratio"])
        c = torch.where(works, keep * state["weight"] + (1 - keep), state["weight"])
        error = torch.where(c > 0, self.transfer_target - m / c, 0.0)
        error = error.sign() * (error.abs() - self.dead_band).clamp(min=0)
        top = (
            torch.as_tensor(highest / self.pull_start, dtype=torch.float64)
            .log()
            .to(log_pull.device)
        )
        step = (self.control_gain * error).clamp(-FASTEST, FASTEST)
        # μ_max may rise with a falling learning rate: a pull that reaches it again is at the limit.
        pushes = (log_pull + step >= top) | (state["at_limit"] >= FUTILE)
        count = torch.where(pushes & (error > 0), state["at_limit"] + 1, 0.0)
        at_limit = torch.where(works, count, state["at_limit"])
        moves = works & (at_limit < FUTILE)
        after = torch.where(moves, log_pull + step, log_pull)
        bottom = torch.full_like(top, log(self.pull_min / self.pull_start))
        after = torch.maximum(torch.minimum(after, top), torch.minimum(bottom, top))
        return {
            "log": torch.where(tripped, 0.0, after),
            "ratio": m,
            "weight": c,
            "loss": mean,
            "lowest": torch.where(tripped, mean, lowest),
            "alarms": torch.where(tripped, 0.0, alarms),
            "pause": torch.where(tripped, float(PAUSE), (state["pause"] - 1).clamp(min=0)),
            "at_limit": torch.where(tripped, 0.0, at_limit),
        }
