"""Heavy-ball momentum inside a round; each round starts from rest.

    buffer ← ρ buffer + v_h,    w_{h+1} = w_h - η_t buffer

The buffer is never stored: the last step was -η_t buffer, so buffer = (w_{h-1} - w_h) / η_t.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.methods.ranges import Range
from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.settings import number


@dataclass(frozen=True, kw_only=True)
class Momentum(LocalRule):
    """Local SGD with momentum ρ."""

    rho: float = number(0.9, "[0, 1)", tuned=Range(0.0, 0.95, log=False))

    looks_back: ClassVar[bool] = True

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the rate, to read the buffer off the last step."""
        rate = torch.full_like(start.steps, start.learning_rate, dtype=torch.float64)
        return memory, {"momentum_rate": rate}

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """v + ρ buffer."""
        if previous is None:
            return gradient
        rate = plan["momentum_rate"][:, None].to(weights)
        return gradient + self.rho * (previous - weights) / rate

    def accumulation(self, start: Start, plan: Rows) -> Tensor:
        """Return the gradients of a round, each counted as often as momentum repeats it."""
        return momentum_accumulation(start.steps, self.rho)


def momentum_accumulation(steps: Tensor, rho: float) -> Tensor:
    """‖a_k‖₁ = Σ_{j=1..H_k} (1 - ρ^j) / (1 - ρ) of H_k = `steps`, float64.

    >>> round(momentum_accumulation(torch.tensor([11]), 0.9).item(), 10)
    48.2429536481
    """
    steps = steps.double()
    return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
