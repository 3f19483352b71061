"""A pull in closed loop: how hard depends on what a vehicle gets back from the fleet.

On windows that are the same in every round, vehicle k keeps from its last turn s the loss before
and after its local steps, F⁰ = F_k(w_s) and F¹ = F_k(w_k). At its next turn t it works out

    q_k = clip((F⁰ - F_k(w_t)) / (F⁰ - F¹), -1, 1)      where F⁰ - F¹ > 1e-12 F⁰

the share of its own gain that the fleet's model has kept: the ratio of actual to predicted gain of
trust-region methods, with the pull as their damping. Neither validation nor test windows are asked.

TransferProximal         every vehicle sets its own μ_k; nothing but Δ_k leaves it
TransferReport/Server    vehicles hand up q_k, and the server sets one λ_t for all

The loop itself is `methods/control.py`. Near a stationary point q goes to 0 whatever the pull, so
the loop raises it to its limit: it finds about what a falling rate finds. Compare it with FedAvg at
a tuned and falling rate (docs/methods.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import torch
from torch import Tensor

from fedwatt.methods.control import Controlled
from fedwatt.methods.proximal import PlannedPull
from fedwatt.methods.rule import LocalRule, Rows, Start, mean_losses
from fedwatt.methods.server import Replies, ServerRule, mean_delta, moved
from fedwatt.models import Model
from fedwatt.settings import number
from fedwatt.tables import PULL, Column

FEWEST: Final = 4
"""Ratios that a server's update needs, each counted by its vehicle's weight over the mean."""
SAFE: Final = 0.5
"""λ_max is so much over the rate, which keeps η (L + μ) < 2 wherever η L < 1.5."""
ZERO: Final = torch.tensor(0.0).double()

TRANSFER: Final = Column("transfer", float, "q_k, the share of its last gain that it got back")
LOOP: Final = Column("loop", float, "0: the vehicle's loop works, 1: it rests, 2: it is saturated")


def transfer_ratio(before: Tensor, after: Tensor, now: Tensor) -> Tensor:
    """q of F⁰, F¹ and F(w_t), element by element; NaN where there is none.

    >>> before, after = torch.tensor([4.0, 4.0, 1.0]), torch.tensor([2.0, 2.0, 1.0])
    >>> transfer_ratio(before, after, torch.tensor([3.0, 9.0, 0.5])).tolist()
    [0.5, -1.0, nan]
    """
    gain = before - after
    ratio = ((before - now) / gain).clamp(-1, 1)
    return torch.where(gain > 1e-12 * before, ratio, torch.nan)


@dataclass(frozen=True, kw_only=True)
class Gains(LocalRule):
    """A vehicle's loss before and after the steps of its last participation."""

    transfer_batch: int = number(128, "[1, inf]", "window")
    """Windows of F_k; a vehicle with fewer uses all it has."""

    begin_timed_as: ClassVar[str] = "probe"

    def memory(self, model: Model) -> Rows:
        """F⁰ and F¹; both 0 before the first turn, which is no gain."""
        return {"gain_from": ZERO, "gain_to": ZERO}

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """q_k of the last turn, and F_k(w_t), at which this one begins; both [P]."""
        now = self.losses(start.origin, start)
        ratio = transfer_ratio(memory["gain_from"], memory["gain_to"], now)
        return memory, {"transfer": ratio, "gain_from": now}

    def losses(self, weights: Tensor, start: Start) -> Tensor:
        """F_k [P] of `weights` [P, D]."""
        return mean_losses(start, weights, self.transfer_batch, "transfer batch")

    def finish(self, memory: Rows, plan: Rows, start: Start, deltas: Tensor) -> tuple[Rows, Rows]:
        """Remember what this turn gained."""
        with torch.no_grad():
            after = self.losses(start.origin + deltas, start)
        return memory | {"gain_from": plan["gain_from"], "gain_to": after}, {}


@dataclass(frozen=True, kw_only=True)
class TransferProximal(Controlled, PlannedPull, Gains):
    """Every vehicle controls its own pull, and uses it in the same turn."""

    records: ClassVar[tuple[Column, ...]] = (PULL, TRANSFER, LOOP)

    def memory(self, model: Model) -> Rows:
        """Return the last turn's losses, and the loop's state."""
        loop_state = {f"loop_{name}": value for name, value in self.loop_state().items()}
        return super().memory(model) | loop_state

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """q_k and the pulls μ_k [P] that follow from it."""
        memory, plan = super().begin(memory, start)
        highest = min(self.pull_max, SAFE / start.learning_rate)
        state = {name.removeprefix("loop_"): v for name, v in memory.items() if "loop_" in name}
        state = self.loop_updated(state, plan["transfer"], plan["gain_from"], highest)
        plan |= {"pull": self.loop_pull(state), "loop": self.loop_condition(state)}
        return memory | {f"loop_{name}": value for name, value in state.items()}, plan


@dataclass(frozen=True, kw_only=True)
class TransferReport(PlannedPull, Gains):
    """The vehicle's part where the server controls: it is pulled as told, and tells q_k."""

    records: ClassVar[tuple[Column, ...]] = (PULL, TRANSFER)

    def uploads(self, model: Model) -> Rows:
        """q_k, whether there is one (1 or 0), and F_k(w_t)."""
        return {"ratio": ZERO, "has_ratio": ZERO, "loss_before": ZERO}

    def server_half(self) -> type[object] | None:
        """Return the server that sets λ_t."""
        return TransferServer

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """λ_t [P], at most ½ over the rate, and q_k."""
        memory, plan = super().begin(memory, start)
        pull = start.broadcast["lam"].flatten().clamp(max=SAFE / start.learning_rate)
        return memory, plan | {"pull": pull}

    def finish(self, memory: Rows, plan: Rows, start: Start, deltas: Tensor) -> tuple[Rows, Rows]:
        """Remember what this turn gained, and tell what the last one left."""
        memory, _ = super().finish(memory, plan, start, deltas)
        has_ratio = plan["transfer"].isfinite()
        handed_up = {"ratio": torch.where(has_ratio, plan["transfer"], 0.0)}
        handed_up["has_ratio"] = has_ratio.double()
        return memory, handed_up | {"loss_before": plan["gain_from"]}


@dataclass(frozen=True, kw_only=True)
class TransferServer(Controlled, ServerRule):
    """The server's part: averaging, and λ_t from the mean of the vehicles' ratios, weighted by n_k.

    κ is at most 1.5 C: a ratio is as many rounds late as a vehicle waits for its next turn.
    """

    pull_max: float = 10.0
    control_keep: float = 0.8

    local_half: ClassVar[type[LocalRule]] = TransferReport
    sum_limits: ClassVar[Mapping[str, float]] = {"ratio": 1.0, "has_ratio": 1.0}
    adds_up: ClassVar[bool] = True  # ratios, their number and losses are weighted sums, too
    stale_reason: ClassVar[str] = (
        "ratios of different models would be compared as if they were of one"
    )

    def state(self, model: Model) -> Rows:
        """Return the loop's, each [1]."""
        return {name: value.reshape(1) for name, value in self.loop_state().items()}

    def broadcast(self, state: Rows) -> Rows:
        """λ_t, [1]."""
        return {"lam": self.loop_pull(state)}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return the mean displacement, and λ for the next round."""
        ratio, has_ratio, loss = map(replies.mean, ("ratio", "has_ratio", "loss_before"))
        enough = has_ratio * len(replies.deltas) >= FEWEST - 1e-9  # a sum of shares is rounded
        ratio = torch.where(enough, ratio / has_ratio, torch.nan)
        gain = 1.5 * replies.participation
        after = self.loop_updated(state, ratio, loss, self.pull_max, gain)
        return after, moved(weights, mean_delta(replies))
