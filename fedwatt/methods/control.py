"""Integral control of a pull's logarithm, with its safeguards.

The controlled variable is a transfer ratio q (`methods/transfer.py`), the share of its local gain
that a vehicle got back from the fleet: 1 all, 0 nothing, below 0 harm. With a pull λ = λ_0 eˣ,

    m ← β m + (1 - β) q,   c ← β c + (1 - β),   e = q* - m/c,   e ← sign(e) max(0, |e| - ε)
    x ← clip(x + clip(κ e, ±ln 1.5), ln λ_min/λ_0, ln λ_max/λ_0)

For q = q* + g (ln λ - x*) with g ≥ 0 the loop is stable if 0 < κ g < 2 (1 + β)/(1 - β); less where
ratios come late, by as many rounds as vehicles wait for their next turn. Safeguards:

    no ratio          nothing moves
    anti-windup       the clip is on the state itself
    watchdog          where the mean loss is 1.5 times its lowest for 3 updates, the pull goes back
                      to λ_0 and the loop rests for 10
    futility          after 10 updates at λ_max with e > 0 it is saturated, and holds

All of it is element by element: [P] for vehicles that each have a loop, [1] for a server.
"""

from dataclasses import dataclass
from math import inf, log
from typing import Final

import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.methods.ranges import Range, Tunable
from fedwatt.methods.rule import Rows
from fedwatt.settings import number

FASTEST: Final = log(1.5)
"""The most that ln λ moves in an update."""
ALARM = 1.5
ALARMS = 3
REST = 10
FUTILE = 10
WORKS = 0.0
RESTS = 1.0
SATURATED = 2.0
"""What a loop is doing."""
NAMES: Final = ("log", "ratio", "weight", "loss", "lowest", "alarms", "rest", "at_limit")


@dataclass(frozen=True, kw_only=True)
class Controlled(Tunable):
    """The loop of a rule, in the vehicles or on the server."""

    pull_start: float = number(0.1, "(0, inf)", tuned=Range(1e-2, 1.0))
    """λ_0"""
    pull_min: float = number(1e-3, "(0, inf)", fixed="a safeguard")
    """λ_min"""
    pull_max: float = number(inf, "(0, inf]", fixed="a safeguard")
    """λ_max, where ½ over the rate is not less."""
    transfer_target: float = number(0.5, "[-1, 1]", tuned=Range(0.1, 0.8, log=False))
    """q*"""
    control_gain: float = number(0.5, "[0, inf)", "(0: the pull stays)", fixed="stability sets it")
    """κ; 0 leaves the pull at λ_0."""
    dead_band: float = number(0.1, "[0, inf)", fixed="a safeguard")
    """ε"""
    control_keep: float = number(0.5, "[0, 1)", fixed="stability sets it")
    """β, of the ratio's and the loss's mean."""

    def __post_init__(self) -> None:
        super().__post_init__()
        start = f"pull_start={self.pull_start:g}"
        check(self, "pull_min", self.pull_min <= self.pull_start, f"in (0, {start}]")
        check(self, "pull_max", self.pull_max >= self.pull_start, f"at least {start}")

    def loop_state(self) -> Rows:
        """Before the first update, without an axis of vehicles."""
        values = {name: torch.tensor(0.0).double() for name in NAMES}
        return values | {"lowest": torch.tensor(torch.inf).double()}

    def loop_pull(self, state: Rows) -> Tensor:
        """λ; exactly λ_0 until something has moved it."""
        return self.pull_start * state["log"].exp()

    def loop_condition(self, state: Rows) -> Tensor:
        """Return whether the loop works, rests or is saturated."""
        saturated = torch.where(state["at_limit"] >= FUTILE, SATURATED, WORKS)
        return torch.where(state["rest"] > 0, RESTS, saturated)

    def loop_updated(
        self, state: Rows, ratio: Tensor, loss: Tensor, highest: float, most_gain: float = inf
    ) -> Rows:
        """Return the state after a `ratio` (NaN: none) and a training `loss`.

        `highest` is λ_max, `most_gain` what κ is at most.
        """
        keep = self.control_keep
        log_pull = state["log"]
        heard = loss.isfinite()
        mean = torch.where(state["lowest"].isinf(), loss, keep * state["loss"] + (1 - keep) * loss)
        mean = torch.where(heard, mean, state["loss"])
        lowest = torch.where(heard, torch.minimum(state["lowest"], mean), state["lowest"])
        alarms = torch.where(heard & (mean > ALARM * lowest), state["alarms"] + 1, 0.0)
        tripped = alarms >= ALARMS
        works = ratio.isfinite() & (state["rest"] == 0) & ~tripped
        m = torch.where(works, keep * state["ratio"] + (1 - keep) * ratio, state["ratio"])
        c = torch.where(works, keep * state["weight"] + (1 - keep), state["weight"])
        error = torch.where(c > 0, self.transfer_target - m / c, 0.0)
        error = error.sign() * (error.abs() - self.dead_band).clamp(min=0)
        top = (
            torch.as_tensor(highest / self.pull_start, dtype=torch.float64)
            .log()
            .to(log_pull.device)
        )
        gain = min(self.control_gain, most_gain)
        step = (gain * error).clamp(-FASTEST, FASTEST)
        # λ_max may rise with a falling rate: whoever is pushed against it again is at the limit.
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
            "rest": torch.where(tripped, float(REST), (state["rest"] - 1).clamp(min=0)),
            "at_limit": torch.where(tripped, 0.0, at_limit),
        }
