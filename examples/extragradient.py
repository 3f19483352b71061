"""Extragradient: look one step ahead, and step from here with the gradient found there.

    g_h = ∇ loss(w_h - η ∇loss(w_h)), both on the same batch

Korpelevich, 1976.

    fedwatt run --method fedavg --method ./examples/extragradient.py:Extragradient
"""

from dataclasses import dataclass

from torch import Tensor

from fedwatt.methods import LocalRule, Rows, StepLoss


@dataclass(frozen=True, kw_only=True)
class Extragradient(LocalRule):
    """The gradient one step ahead."""

    def explore(self, loss: StepLoss, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """Two gradients a step, all vehicles [P, D] at once."""
        return loss.gradient(weights - loss.learning_rate * loss.gradient(weights))
