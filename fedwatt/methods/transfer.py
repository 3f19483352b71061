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
from math import inf
from typing import ClassVar, Final

import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.methods.control import Loop
from fedwatt.methods.proximal import pull, pull_accumulation
from fedwatt.methods.ranges import Range
from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.methods.server import Replies, ServerRule, mean_delta, moved
from fedwatt.models import Model
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
    """What a vehicle remembers of its last turn: its loss before and after its steps."""

    transfer_batch: int = 128
    """Windows of F_k; a vehicle with fewer uses all it has."""

    begin_timed_as: ClassVar[str] = "probe"

    def memory(self, model: Model) -> Rows:
        """F⁰ and F¹; both 0 before the first turn, which is no gain."""
        return {"gain_from": ZERO, "gain_to": ZERO}

    def losses(self, weights: Tensor, start: Start) -> Tensor:
        """F_k [P] of `weights` [P, D], each vehicle's mean in float64."""
        found = []
        for row, own in enumerate(weights):
            batch = start.fixed_batch(row, self.transfer_batch, "transfer batch")
            errors = start.loss(start.model.predict(own, batch.windows), batch.labels)
            found.append(errors.double().mean())
        return torch.stack(found)

    def finish(self, memory: Rows, plan: Rows, start: Start, deltas: Tensor) -> tuple[Rows, Rows]:
        """Remember what this turn gained."""
        with torch.no_grad():
            after = self.losses(start.origin + deltas, start)
        return memory | {"gain_from": plan["gain_from"], "gain_to": after}, {}


@dataclass(frozen=True, kw_only=True)
class TransferPull(Gains):
    """A pull toward w_t, whoever controls it."""

    def gradient(self, gradient: Tensor, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """g + μ_k (w - w_t)."""
        return pull(gradient, weights, anchor, plan["pull"][:, None].to(gradient.dtype))

    def accumulation(self, start: Start, plan: Rows) -> Tensor:
        """As FedProx's, with each vehicle's own pull."""
        return pull_accumulation(start.steps, start.rate, plan["pull"])


def _check_loop(rule: "TransferProximal | TransferServer") -> None:
    """Refuse numbers with which the loop means nothing."""
    check(rule, "pull_start", 0 < rule.pull_start < inf, "above 0 and finite")
    low = 0 < rule.pull_min <= rule.pull_start
    check(rule, "pull_min", low, f"in (0, pull_start={rule.pull_start:g}]")
    high = rule.pull_max >= rule.pull_start
    check(rule, "pull_max", high, f"at least pull_start={rule.pull_start:g}")
    check(rule, "transfer_target", -1 <= rule.transfer_target <= 1, "in [-1, 1]")
    check(rule, "control_gain", 0 <= rule.control_gain < inf, "at least 0 (0: the pull stays)")
    check(rule, "dead_band", 0 <= rule.dead_band < inf, "at least 0 and finite")
    check(rule, "control_keep", 0 <= rule.control_keep < 1, "in [0, 1)")


FIXED: Final[Mapping[str, str]] = {
    "pull_min": "a safeguard",
    "pull_max": "a safeguard",
    "dead_band": "a safeguard",
    "control_gain": "stability sets it",
    "control_keep": "stability sets it",
}
RANGES: Final[Mapping[str, Range]] = {
    "pull_start": Range(1e-2, 1.0),
    "transfer_target": Range(0.1, 0.8, log=False),
}


@dataclass(frozen=True, kw_only=True)
class TransferProximal(TransferPull):
    """Every vehicle controls its own pull, and uses it in the same turn."""

    pull_start: float = 0.1
    """λ_0"""
    pull_min: float = 1e-3
    pull_max: float = inf
    """λ_max, where ½ over the rate is not less."""
    transfer_target: float = 0.5
    """q*"""
    control_gain: float = 0.5
    """κ"""
    dead_band: float = 0.1
    """ε"""
    control_keep: float = 0.5
    """β"""

    ranges: ClassVar[Mapping[str, Range]] = RANGES
    fixed: ClassVar[Mapping[str, str]] = FIXED
    records: ClassVar[tuple[Column, ...]] = (PULL, TRANSFER, LOOP)

    def __post_init__(self) -> None:
        check(self, "transfer_batch", self.transfer_batch >= 1, "at least 1 window")
        _check_loop(self)

    @property
    def loop(self) -> Loop:
        """The controller."""
        return Loop(
            self.pull_start,
            self.transfer_target,
            self.control_gain,
            self.dead_band,
            self.control_keep,
            self.pull_min,
        )

    def memory(self, model: Model) -> Rows:
        """The last turn's losses, and the loop's state."""
        own = {f"loop_{name}": value for name, value in self.loop.state().items()}
        return super().memory(model) | own

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """q_k and the pulls μ_k [P] that follow from it."""
        now = self.losses(start.origin, start)
        ratio = transfer_ratio(memory["gain_from"], memory["gain_to"], now)
        state = {name.removeprefix("loop_"): v for name, v in memory.items() if "loop_" in name}
        state = self.loop.updated(state, ratio, now, min(self.pull_max, SAFE / start.rate))
        plan = {"pull": self.loop.pull(state), "transfer": ratio, "gain_from": now}
        kept = {f"loop_{name}": value for name, value in state.items()}
        return memory | kept, plan | {"loop": self.loop.condition(state)}


@dataclass(frozen=True, kw_only=True)
class TransferReport(TransferPull):
    """The vehicle's part where the server controls: it is pulled as told, and tells q_k."""

    records: ClassVar[tuple[Column, ...]] = (PULL, TRANSFER)

    def __post_init__(self) -> None:
        check(self, "transfer_batch", self.transfer_batch >= 1, "at least 1 window")

    def uploads(self, model: Model) -> Rows:
        """q_k, whether there is one (1 or 0), and F_k(w_t)."""
        return {"ratio": ZERO, "has_ratio": ZERO, "loss_before": ZERO}

    def server_half(self) -> type[object]:
        """The server that sets λ_t."""
        return TransferServer

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """λ_t [P], at most ½ over the rate, and q_k."""
        now = self.losses(start.origin, start)
        ratio = transfer_ratio(memory["gain_from"], memory["gain_to"], now)
        told = start.broadcast["lam"].flatten().clamp(max=SAFE / start.rate)
        return memory, {"pull": told, "transfer": ratio, "gain_from": now}

    def finish(self, memory: Rows, plan: Rows, start: Start, deltas: Tensor) -> tuple[Rows, Rows]:
        """Remember what this turn gained, and tell what the last one left."""
        memory, _ = super().finish(memory, plan, start, deltas)
        known = plan["transfer"].isfinite()
        handed_up = {"ratio": torch.where(known, plan["transfer"], 0.0)}
        handed_up["has_ratio"] = known.double()
        return memory, handed_up | {"loss_before": plan["gain_from"]}


@dataclass(frozen=True, kw_only=True)
class TransferServer(ServerRule):
    """The server's part: averaging, and λ_t from the mean of the vehicles' ratios, weighted by n_k.

    κ is at most 1.5 C: a ratio is as many rounds late as a vehicle waits for its next turn.
    """

    pull_start: float = 0.1
    pull_min: float = 1e-3
    pull_max: float = 10.0
    transfer_target: float = 0.5
    control_gain: float = 0.5
    dead_band: float = 0.1
    control_keep: float = 0.8

    local_half: ClassVar[type[LocalRule]] = TransferReport
    sum_limits: ClassVar[Mapping[str, float]] = {"ratio": 1.0, "has_ratio": 1.0}
    ranges: ClassVar[Mapping[str, Range]] = RANGES
    fixed: ClassVar[Mapping[str, str]] = FIXED
    adds_up: ClassVar[bool] = True  # ratios, their number and losses are weighted sums, too
    stale_reason: ClassVar[str] = (
        "ratios of different models would be compared as if they were of one"
    )

    def __post_init__(self) -> None:
        _check_loop(self)

    def loop(self, participation: float) -> Loop:
        """The controller, for vehicles that take turns this often."""
        return Loop(
            self.pull_start,
            self.transfer_target,
            min(self.control_gain, 1.5 * participation),
            self.dead_band,
            self.control_keep,
            self.pull_min,
        )

    def state(self, model: Model) -> Rows:
        """The loop's, each [1]."""
        return {name: value.reshape(1) for name, value in self.loop(1.0).state().items()}

    def broadcast(self, state: Rows) -> Rows:
        """λ_t, [1]."""
        return {"lam": self.loop(1.0).pull(state)}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """The mean displacement, and λ for the next round."""
        shares = replies.windows / replies.windows.sum()
        ratio, known, loss = (
            (shares * replies.uploads[name].double()).sum().reshape(1)
            for name in ("ratio", "has_ratio", "loss_before")
        )
        enough = known * len(shares) >= FEWEST - 1e-9  # a sum of shares is rounded
        ratio = torch.where(enough, ratio / known, torch.nan)
        loop = self.loop(replies.participation)
        after = loop.updated(state, ratio, loss, self.pull_max)
        return after, moved(weights, mean_delta(replies))
