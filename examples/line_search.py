"""A line search in every step: halve it until the batch's loss falls as much as it should.

    loss(w - s η g) ≤ loss(w) - c s η ‖g‖²    with s = 1, 1/2, 1/4, ... for each vehicle

Armijo, 1966; on single batches Vaswani et al., NeurIPS 2019.

    fedwatt run --method fedavg --method ./examples/line_search.py:LineSearch
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedwatt.methods import LocalRule, Rows, StepLoss, number


@dataclass(frozen=True, kw_only=True)
class LineSearch(LocalRule):
    """Armijo's rule with at most `halvings` halvings."""

    halvings: int = 4
    c: float = number(0.1, "(0, 1)", fixed="a usual value")

    def explore(self, loss: StepLoss, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """One gradient a step, and a loss for each halving."""
        gradient = loss.gradient(weights)
        share = torch.ones_like(weights[:, :1])
        here = loss.value(weights)[:, None]
        slope = gradient.square().sum(-1, keepdim=True)
        for _ in range(self.halvings):
            there = loss.value(weights - share * loss.learning_rate * gradient)[:, None]
            enough = there <= here - self.c * share * loss.learning_rate * slope
            share = torch.where(enough, share, share / 2)
        return share * gradient
