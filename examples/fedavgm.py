"""FedAvgM: momentum on the server, so that rounds that agree add up.

    m ← β m + Σ p_k Δ_k,   w_{t+1} = w_t + m

Hsu, Qi and Brown, 2019. (`fedavg@sgd` with server_momentum is the same; this is how one writes it.)

    fedwatt run --method fedavg --method ./examples/fedavgm.py:fedavgm
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.methods import Method, Range, Replies, Rows, ServerRule, mean_delta, moved, number
from fedwatt.models import Model


@dataclass(frozen=True, kw_only=True)
class AverageWithMomentum(ServerRule):
    """Averaging with momentum β."""

    beta: float = number(0.5, "[0, 1)", tuned=Range(0.0, 0.95, log=False))
    averages: ClassVar[bool] = True  # needs the mean displacement only: defences, secure sums work

    def state(self, model: Model) -> Rows:
        """No momentum before the first round, [D]."""
        return {"m": torch.zeros(model.layout.size, dtype=torch.float64)}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """(m, w_{t+1})."""
        m = self.beta * state["m"] + mean_delta(replies)
        return {"m": m}, moved(weights, m)


fedavgm = Method("fedavgm", server=AverageWithMomentum())
