"""Adaptive server steps along the mean update: FedOpt and FedExP."""

from abc import abstractmethod
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
class ServerSgd(ServerRule):
    """SGD with momentum on the server, FedAvgM; FedAvg at the defaults.

    Hsu, Qi and Brown, arXiv 1909.06335, 2019. With `server_momentum` γ:

        m ← γ m + Δ̄,    w_{t+1} = w_t + η_g m
    """

    server_learning_rate: float = number(
        1.0, "(0, inf)", fixed="the local learning rate is tuned instead"
    )
    server_momentum: float = number(0.0, "[0, 1)", tuned=Range(0.0, 0.9, log=False))

    averages = True

    def state(self, model: Model) -> Rows:
        """Return zero momentum."""
        return {"m": torch.zeros(model.layout.size, dtype=torch.float64)}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return m ← γ m + Δ̄ and the model w_t + η_g m."""
        m = self.server_momentum * state["m"] + mean_delta(replies)
        return {"m": m}, moved(weights, self.server_learning_rate * m)


@dataclass(frozen=True, kw_only=True)
class _Adaptive(ServerRule):
    """An adaptive optimiser on the server, FedOpt.

    Reddi et al., ICLR 2021, arXiv 2003.00295, take Δ̄ = Σ ω_k Δ_k for a gradient, per weight:

        m ← β₁ m + (1 - β₁) Δ̄,                 m = 0 at first
        Adam     v ← β₂ v + (1 - β₂) Δ̄²        v = τ² at first
        Yogi     v ← v - (1 - β₂) Δ̄² sign(v - Δ̄²)
        Adagrad  v ← v + Δ̄²
        w_{t+1} = w_t + η_g m / (√v + τ)

    as published: no bias correction, τ outside the root, v from Δ̄ rather than m. The sign is plus
    because Δ̄ already points downhill. Keras, optax and Flower differ in one or more of these.
    """

    server_learning_rate: float = number(0.01, "(0, inf)", tuned=Range(1e-3, 1e-1))  # η_g
    beta1: float = number(0.9, "[0, 1)", fixed="the authors' value")
    tau: float = number(1e-3, "(0, inf)", tuned=Range(1e-4, 1e-2))
    """τ, the degree of adaptivity; also the start of √v."""

    averages = True

    def state(self, model: Model) -> Rows:
        """Return m = 0 and v = τ²."""
        m = torch.zeros(model.layout.size, dtype=torch.float64)
        return {"m": m, "v": torch.full_like(m, self.tau**2)}

    @abstractmethod
    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """Return v [D] after a round with Δ̄² = `squared` [D]."""

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return m, v and the model w_t + η_g m / (√v + τ)."""
        mean = mean_delta(replies)
        m = self.beta1 * state["m"] + (1 - self.beta1) * mean
        v = self.second_moment(state["v"], mean**2)
        return {"m": m, "v": v}, moved(
            weights, self.server_learning_rate * m / (v.sqrt() + self.tau)
        )


@dataclass(frozen=True, kw_only=True)
class Adagrad(_Adaptive):
    """Adagrad on the server: v grows by every squared update; β₁ is 0 by default, as published."""

    beta1: float = 0.0

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """Return v + Δ̄²."""
        return v + squared


@dataclass(frozen=True, kw_only=True)
class Adam(_Adaptive):
    """Adam on the server: v is a moving average of squared updates."""

    beta2: float = number(0.99, "[0, 1]", fixed="the authors' value")

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """Return β₂ v + (1 - β₂) Δ̄²."""
        return self.beta2 * v + (1 - self.beta2) * squared


@dataclass(frozen=True, kw_only=True)
class Yogi(Adam):
    """Yogi on the server: Adam whose v moves toward the squared update by a bounded amount."""

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """Return v - (1 - β₂) Δ̄² sign(v - Δ̄²)."""
        return v - (1 - self.beta2) * squared * torch.sign(v - squared)


@dataclass(frozen=True, kw_only=True)
class SquaredLength(LocalRule):
    """FedExP's local rule: plain training and an upload of ‖Δ_k‖²."""

    server_half = "Extrapolated"

    def uploads(self, model: Model) -> Rows:
        """Return a template of the upload ‖Δ_k‖²."""
        return {"squared_length": torch.zeros((), dtype=torch.float64)}

    def finish(
        self, client_state: Rows, plan: Rows, start: Start, deltas: Tensor
    ) -> tuple[Rows, Rows]:
        """Upload ‖Δ_k‖² [P]."""
        return client_state, {"squared_length": deltas.double().square().sum(dim=-1)}


@dataclass(frozen=True, kw_only=True)
class Extrapolated(ServerRule):
    """FedExP's server rule: a longer step where updates disagree.

    Jhunjhunwala, Wang and Joshi, ICLR 2023, arXiv 2301.09604. Updates that point apart shorten
    their mean; the server undoes that, and never shortens it:

        E₁ = Σ ω_k ‖Δ_k‖²,    E₂ = ‖Δ̄‖²
        η_g = max(1, E₁ / (2 (E₂ + ε))),    w_{t+1} = w_t + η_g Δ̄

    with ω_k = n_k/n_t, as in the authors' code; the paper has 1/|S_t|. Its ε is constant. The
    default here is ε = ε_r E₁, which keeps η_g below 1/(2 ε_r) and does not depend on the scale of
    Δ. The paper returns the mean of the last two models; here it is the last. Vehicles upload
    ‖Δ_k‖², one number, so that secure aggregation can sum E₁.
    """

    epsilon_relative: float = number(0.05, "[0, inf)", tuned=Range(0.01, 0.2))
    """ε_r; η_g is at most 1/(2 ε_r)."""
    epsilon: float = number(0.0, "[0, inf)", fixed="depends on the scale of the updates")
    """ε of the paper, constant in all rounds, besides ε_r E₁."""

    local_half = SquaredLength
    sum_limits: ClassVar[Mapping[str, float]] = {"squared_length": 2.0**20}
    adds_up = True  # E₁ and Δ̄ are weighted sums
    stale_reason = "the factors of stale replies would enter E₁ and E₂ unequally"

    def __post_init__(self) -> None:
        super().__post_init__()
        some = self.epsilon > 0 or self.epsilon_relative > 0
        check(self, "epsilon", some, "above 0 where epsilon_relative is 0")

    def factor(self, mean: Tensor, squared_lengths: Tensor) -> float:
        """Return η_g from Δ̄ [D] and E₁, both float64.

        >>> rule = Extrapolated(epsilon_relative=0.05)
        >>> rule.factor(torch.tensor([0.5, 0.5]), torch.tensor(1.0))  # orthogonal, of length 1
        1.0
        >>> rule.factor(torch.tensor([0.0, 0.0]), torch.tensor(1.0))  # 1/(2 ε_r)
        10.0
        """
        epsilon = self.epsilon + self.epsilon_relative * squared_lengths
        ratio = squared_lengths / (2 * (mean.square().sum() + epsilon))
        return max(1.0, float(ratio.nan_to_num()))  # 0/0: no vehicle moved

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return the model w_t + η_g Δ̄."""
        mean = mean_delta(replies)
        factor = self.factor(mean, replies.mean("squared_length"))
        return state, moved(weights, factor * mean)
