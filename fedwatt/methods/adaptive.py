"""FedOpt: the server treats the mean displacement as a gradient and takes an adaptive step.

Reddi et al., ICLR 2021. With Δ̄ = Σ p_k Δ_k, element-wise:

    m ← β₁ m + (1 - β₁) Δ̄,                            m = 0 at first
    Adam     v ← β₂ v + (1 - β₂) Δ̄²                   v = τ² at first
    Yogi     v ← v - (1 - β₂) Δ̄² sign(v - Δ̄²)
    Adagrad  v ← v + Δ̄²
    w_{t+1} = w_t + η_s m / (√v + τ)

as published: no bias correction, τ outside the root, v from Δ̄ rather than m. The sign is plus
because Δ̄ already points downhill. Keras, optax and Flower differ in one or more of these.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.methods.rule import Rows
from fedwatt.methods.server import Replies, ServerRule, mean_delta, moved
from fedwatt.models import Model
from fedwatt.settings import Range, number


@dataclass(frozen=True, kw_only=True)
class ServerSgd(ServerRule):
    """w_{t+1} = w_t + η_s Δ̄, with server momentum; the rate 1 without momentum is FedAvg."""

    server_learning_rate: float = number(
        1.0, "(0, inf)", fixed="the local rate is tuned in its place"
    )
    server_momentum: float = number(0.0, "[0, 1)", tuned=Range(0.0, 0.9, log=False))

    averages: ClassVar[bool] = True

    def state(self, model: Model) -> Rows:
        """No momentum yet."""
        return {"m": torch.zeros(model.layout.size, dtype=torch.float64)}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """m ← γ m + Δ̄; w_t + η_s m."""
        m = self.server_momentum * state["m"] + mean_delta(replies)
        return {"m": m}, moved(weights, self.server_learning_rate * m)


@dataclass(frozen=True, kw_only=True)
class _Adaptive(ServerRule):
    server_learning_rate: float = number(0.01, "(0, inf)", tuned=Range(1e-3, 1e-1))  # η_s
    beta1: float = number(0.9, "[0, 1)", fixed="the authors' value")
    tau: float = number(1e-3, "(0, inf)", tuned=Range(1e-4, 1e-2))
    """τ, the degree of adaptivity; also the start of √v."""

    averages: ClassVar[bool] = True

    def state(self, model: Model) -> Rows:
        """m = 0, v = τ²."""
        m = torch.zeros(model.layout.size, dtype=torch.float64)
        return {"m": m, "v": torch.full_like(m, self.tau**2)}

    @abstractmethod
    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """v after a round with Δ̄² = `squared`, all [D]."""

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """w_t + η_s m / (√v + τ)."""
        mean = mean_delta(replies)
        m = self.beta1 * state["m"] + (1 - self.beta1) * mean
        v = self.second_moment(state["v"], mean**2)
        return {"m": m, "v": v}, moved(
            weights, self.server_learning_rate * m / (v.sqrt() + self.tau)
        )


@dataclass(frozen=True, kw_only=True)
class Adagrad(_Adaptive):
    """v grows by every squared displacement; no momentum by default, as published."""

    beta1: float = 0.0

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """v + Δ̄²."""
        return v + squared


@dataclass(frozen=True, kw_only=True)
class Adam(_Adaptive):
    """v is a moving average of squared displacements."""

    beta2: float = number(0.99, "[0, 1]", fixed="the authors' value")

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """β₂ v + (1 - β₂) Δ̄²."""
        return self.beta2 * v + (1 - self.beta2) * squared


@dataclass(frozen=True, kw_only=True)
class Yogi(Adam):
    """Adam whose v moves toward the squared displacement by a bounded amount."""

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """v - (1 - β₂) Δ̄² sign(v - Δ̄²)."""
        return v - (1 - self.beta2) * squared * torch.sign(v - squared)
