"""The order α of fractional steps, chosen while training goes on: an experiment.

A fractional step is mostly a shorter one, so p is divided by its mean (`match_rate`) and only its
shape is left to choose. Blocks of b rounds alternate between the reference α = 1 and one of the
arms. With f the mean training loss at the broadcast model, on windows that stay the same,

    ρ = -ln(f_last/f_first)/(b - 1)  of a block,    y = clip(ρ - ½ (ρ_before + ρ_after), ±0.05)

is an arm's reward: differences to the blocks around it take the trend out. Then, discounted,

    N_a ← γ N_a + 1[a],   S_a ← γ S_a + y 1[a],   next: argmax S_a/N_a + c √(ln(1 + ΣN)/N_a)

with untried arms first and ties to the larger α. Where the loss rises by a tenth within a block, or
is not finite, the reward is -0.05 and two blocks run the reference. After twelve arm blocks the
arm with the best mean stays if that is two standard errors above 0; else α = 1 does. Half of the
exploration runs the reference: only for long trainings. f_last is of the block's last round, since
the next one's loss is known only when its order must be.
"""

from dataclasses import dataclass
from math import gamma, isfinite, log, sqrt
from typing import ClassVar, Final

import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.methods.fractional import Fractional
from fedwatt.methods.rule import LocalRule, Rows, Start, mean_losses
from fedwatt.methods.server import Average, Replies, mean_delta, moved
from fedwatt.models import Model
from fedwatt.settings import number
from fedwatt.tables import Column

LARGEST: Final = 0.05
"""Of a reward, either way."""
RISE: Final = 1.1
"""A loss that ends so many times higher than it began ends a block badly."""
REST = 2
ENOUGH = 12
"""Blocks of the reference after a bad one; arm blocks after which exploration ends."""
REFERENCE: Final = -1
TOLD: Final = ("alpha", "exponent", "normaliser")
"""What vehicles are told of the order: α, 1-α and Γ(2-α)."""
ORDER: Final = Column("alpha", float, "α, the order of the vehicle's fractional steps")
ZERO: Final = torch.tensor(0.0).double()


@dataclass(frozen=True, kw_only=True)
class ChosenOrder(Fractional):
    """The vehicle's part: fractional steps of the order that it is told."""

    alpha: float = number(0.8, "(0, 1]", fixed="the server chooses it")
    match_rate: bool = True
    order_batch: int = number(128, "[1, inf]", "window")
    """Windows of the loss that it tells; a vehicle with fewer uses all it has."""

    begin_timed_as: ClassVar[str] = "probe"
    records: ClassVar[tuple[Column, ...]] = (*Fractional.records, ORDER)

    def uploads(self, model: Model) -> Rows:
        """F_k(w_t)."""
        return {"loss_before": ZERO}

    def server_half(self) -> type[object]:
        """Return the server that chooses."""
        return OrderBandit

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """α, 1-α and Γ(2-α) [P] as told, and F_k(w_t)."""
        memory, plan = super().begin(memory, start)
        plan |= {name: start.broadcast[name].flatten() for name in TOLD}
        losses = mean_losses(start, start.origin, self.order_batch, "order batch")
        return memory, plan | {"loss_before": losses}


@dataclass(frozen=True, kw_only=True)
class OrderBandit(Average):
    """The server's part: averaging, and the order of the next block."""

    arms: tuple[float, ...] = (0.9, 0.8, 0.7)
    block: int = number(5, "[2, inf]", "rounds")
    """b, rounds."""
    forget: float = number(0.95, "(0, 1]", fixed="of the bandit")
    """γ"""
    curiosity: float = number(0.01, "[0, inf]", fixed="of the bandit")
    """c"""
    reference: bool = True
    """Whether every second block is α = 1; without it rewards are not held against anything."""

    averages: ClassVar[bool] = False
    adds_the_mean: ClassVar[bool] = False
    local_half: ClassVar[type[LocalRule]] = ChosenOrder
    adds_up: ClassVar[bool] = True  # the loss is a weighted sum, too
    stale_reason: ClassVar[str] = (
        "losses of different models would be compared as if they were of one"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "arms", bool(self.arms), "at least one order")
        check(self, "arms", all(0 < arm <= 1 for arm in self.arms), "in (0, 1]")

    def state(self, model: Model) -> Rows:
        """Return the statistics of each arm [A], of this block and of the one before it, each [1].

        A `loss` below 0 is none yet.
        """
        by_arm = dict.fromkeys(("weights", "sums", "counts", "totals", "squares"))
        none = {name: torch.zeros(len(self.arms)).double() for name in by_arm}
        first = REFERENCE if self.reference else 0
        block = {"round": 0, "place": first, "loss": -1, "first": 0, "rest": 0}
        block |= {"before": 0, "gain": 0, "tried": REFERENCE, "done": 0}
        return none | {name: torch.tensor([float(v)]).double() for name, v in block.items()}

    def broadcast(self, state: Rows) -> Rows:
        """α, 1-α and Γ(2-α), each as `place` is."""
        place = state["place"].long()
        orders = (*self.arms, 1.0)  # the reference is place -1
        tables = (orders, [1 - order for order in orders], [gamma(2 - order) for order in orders])
        return {
            name: torch.tensor(table, dtype=torch.float64, device=place.device)[place]
            for name, table in zip(TOLD, tables, strict=True)
        }

    def chosen(self, state: Rows) -> int:
        """Return the arm of the next arm block."""
        weights = state["weights"].tolist()
        sums = state["sums"].tolist()
        for arm, tries in enumerate(state["counts"].tolist()):
            if not tries:
                return arm
        log_total = log(1 + sum(weights))
        values = [
            s / n + self.curiosity * sqrt(log_total / n) for s, n in zip(sums, weights, strict=True)
        ]
        best = max(values)
        return max(
            (arm for arm, value in enumerate(values) if value == best), key=lambda a: self.arms[a]
        )

    def credited(self, state: Rows, arm: int, reward: float) -> Rows:
        """Return the state after an arm's reward; all arms are discounted."""
        arm_mask = torch.zeros_like(state["weights"])
        arm_mask[arm] = 1.0
        return state | {
            "weights": self.forget * state["weights"] + arm_mask,
            "sums": self.forget * state["sums"] + reward * arm_mask,
            "counts": state["counts"] + arm_mask,
            "totals": state["totals"] + reward * arm_mask,
            "squares": state["squares"] + reward**2 * arm_mask,
        }

    def verdict(self, state: Rows) -> int:
        """Return the arm that stays: the best mean reward, if it is two standard errors above 0."""
        count = state["counts"].clamp(min=1)
        mean = state["totals"] / count
        spread = (state["squares"] / count - mean**2).clamp(min=0) * count / (count - 1)
        arm = int(mean.argmax())
        error = (spread / count).sqrt()[arm].item()  # of one try: 0/0, which nothing exceeds
        return arm if mean[arm].item() > 2 * error else REFERENCE

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return the mean displacement, and the order of the next round."""
        loss = replies.mean("loss_before")
        mean = torch.where(state["loss"] < 0, loss, 0.5 * state["loss"] + 0.5 * loss)
        place = int(state["round"].item()) % self.block
        state = state | {"loss": mean, "round": state["round"] + 1}
        if place == 0:
            state = state | {"first": mean}
        if place == self.block - 1:
            state = self._next_block(state)
        return state, moved(weights, mean_delta(replies))

    def _next_block(self, state: Rows) -> Rows:
        """Close a block, credit the arm before it, and choose the next."""
        if state["done"].item():
            return state
        first = state["first"].item()
        last = state["loss"].item()
        arm = int(state["place"].item())
        bad = not isfinite(last) or last > RISE * first
        rate = 0.0 if bad or last <= 0 else -log(last / first) / (self.block - 1)

        def told(**numbers: float) -> Rows:
            like = state["place"]
            return {name: torch.full_like(like, float(value)) for name, value in numbers.items()}

        if arm == REFERENCE:
            waiting = int(state["tried"].item())
            if waiting != REFERENCE:
                around = (state["before"].item() + rate) / 2
                reward = max(-LARGEST, min(LARGEST, state["gain"].item() - around))
                state = self.credited(state, waiting, reward)
            state = state | told(before=rate, tried=REFERENCE)
        elif bad:
            state = self.credited(state, arm, -LARGEST) | told(rest=REST)
        elif self.reference:
            state = state | told(gain=rate, tried=arm)
        else:
            state = self.credited(state, arm, max(-LARGEST, min(LARGEST, rate)))
        if state["counts"].sum().item() >= ENOUGH and len(self.arms) > 1:
            return state | told(place=self.verdict(state), done=1)
        if state["rest"].item() > 0:
            return state | told(place=REFERENCE, rest=state["rest"].item() - 1)
        turn = self.reference and arm != REFERENCE
        return state | told(place=REFERENCE if turn else self.chosen(state))
