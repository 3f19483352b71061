"""FedExP: the server lengthens the mean displacement when the vehicles disagree.

Jhunjhunwala, Wang and Joshi, ICLR 2023. Displacements that point apart shorten their mean; the
server undoes that, and never shortens it:

    Δ̄ = Σ p_k Δ_k,    E₁ = Σ p_k ‖Δ_k‖²,    E₂ = ‖Δ̄‖²
    η_g = max(1, E₁ / (2 (E₂ + ε))),          w_{t+1} = w_t + η_g Δ̄

with p_k = n_k/n_t, as in the authors' code; the paper has 1/|S_t|. Its ε is constant. The default
here is ε = ε_r E₁, which keeps η_g below 1/(2 ε_r) and does not depend on the scale of Δ.
Vehicles hand up ‖Δ_k‖², one number, so that E₁ is a sum that may be taken under masks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.methods.server import Replies, ServerRule, mean_delta, moved
from fedwatt.models import Model
from fedwatt.settings import Range, number


@dataclass(frozen=True, kw_only=True)
class SquaredLength(LocalRule):
    """The vehicle's part: it trains as ever and tells ‖Δ_k‖²."""

    def uploads(self, model: Model) -> Rows:
        """‖Δ_k‖²."""
        return {"squared_length": torch.zeros((), dtype=torch.float64)}

    def server_half(self) -> type[object]:
        """FedExP's server, which compares it with the mean's."""
        return Extrapolated

    def finish(self, memory: Rows, plan: Rows, start: Start, deltas: Tensor) -> tuple[Rows, Rows]:
        """‖Δ_k‖² [P]."""
        return memory, {"squared_length": deltas.double().square().sum(dim=-1)}


@dataclass(frozen=True, kw_only=True)
class Extrapolated(ServerRule):
    """The server's part."""

    epsilon_relative: float = number(0.05, "[0, inf)", tuned=Range(0.01, 0.2))
    """ε_r; η_g is at most 1/(2 ε_r)."""
    epsilon: float = number(0.0, "[0, inf)", fixed="depends on the scale of the displacements")
    """ε of the paper, constant in all rounds, besides ε_r E₁."""

    local_half: ClassVar[type[LocalRule]] = SquaredLength
    sum_limits: ClassVar[Mapping[str, float]] = {"squared_length": 2.0**20}
    adds_up: ClassVar[bool] = True  # E₁ and Δ̄ are weighted sums
    stale_reason: ClassVar[str] = "the factors of stale replies would enter E₁ and E₂ unequally"

    def __post_init__(self) -> None:
        super().__post_init__()
        some = self.epsilon > 0 or self.epsilon_relative > 0
        check(self, "epsilon", some, "above 0 where epsilon_relative is 0")

    def factor(self, mean: Tensor, squared_lengths: Tensor) -> float:
        """η_g from Δ̄ [D] and E₁, both float64.

        >>> rule = Extrapolated(epsilon_relative=0.05)
        >>> rule.factor(torch.tensor([0.5, 0.5]), torch.tensor(1.0))  # orthogonal, of length 1
        1.0
        >>> rule.factor(torch.tensor([0.0, 0.0]), torch.tensor(1.0))  # 1/(2 ε_r)
        10.0
        """
        epsilon = self.epsilon + self.epsilon_relative * squared_lengths
        ratio = squared_lengths / (2 * (mean.square().sum() + epsilon))
        return max(1.0, float(ratio.nan_to_num()))  # 0/0: nobody moved

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """w_t + η_g Δ̄."""
        mean = mean_delta(replies)
        factor = self.factor(mean, replies.mean("squared_length"))
        return state, moved(weights, factor * mean)
