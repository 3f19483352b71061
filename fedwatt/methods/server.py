"""Server rules, and FedAvg's: the average weighted by each vehicle's windows.

McMahan et al., AISTATS 2017, arXiv 1602.05629; paper `eq:fedavg_agg`, with updates Δ_k = w_k - w_t:

    w_{t+1} = w_t + Σ_k (n_k / n_t) Δ_k    over vehicles whose update counted
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedwatt.methods.rule import LocalRule, Rows
from fedwatt.models import Model
from fedwatt.randomness import SystemNoise
from fedwatt.settings import Tunable
from fedwatt.threads import run_on_cores


@dataclass(frozen=True)
class Replies:
    """Updates that R vehicles uploaded in one round, in ascending order of their names."""

    deltas: Tensor
    """Δ_k, [R, D]"""
    windows: Tensor
    """n_k, [R], float64"""
    population: int
    """K, all vehicles of the federation."""
    population_windows: float
    """n, training windows of all vehicles."""
    rng: np.random.Generator | SystemNoise
    """The server's random numbers of this round, for rules that add noise."""
    uploads: Rows = field(default_factory=dict)
    """Uploads of the local rules other than Δ_k, each [R, ...]."""
    participation: float = 1.0
    """C, the share of vehicles called in a round, or the probability of each."""
    filled: float = 1.0
    """Share of a buffer's places that are filled; an empty place counts as Δ = 0. 1 in rounds."""
    noised: bool = False
    """Whether vehicles have added the noise to the sum of which these are the mean."""
    steps: Tensor | None = None
    """H_k, [R]; None: not known."""

    @property
    def shares(self) -> Tensor:
        """ω_k = n_k / n_t, [R], float64."""
        return self.windows / self.windows.sum()

    def mean(self, upload: str) -> Tensor:
        """Return Σ ω_k x_k [1] of an upload that is one number x_k per vehicle, float64."""
        return (self.shares * self.uploads[upload].double()).sum().reshape(1)


@dataclass(frozen=True)
class GaussianMechanism:
    """The noise that a round adds for differential privacy, as an accountant needs it."""

    noise_multiplier: float
    """z, the noise's standard deviation over the largest change of the sum by one vehicle."""
    amplified: bool
    """Whether ε assumes secret Poisson sampling of vehicles."""
    delta: float
    """δ of the guarantee (ε, δ); 0: K^-1.1."""


@dataclass(frozen=True, kw_only=True)
class ServerRule(Tunable, ABC):
    """A rule that turns updates into the next model; its state goes in and comes out."""

    normalises: ClassVar[bool] = False
    """Whether each vehicle uploads ‖a_k‖₁ as "accumulation"."""
    only_deltas: ClassVar[bool] = False
    """Whether vehicles may upload Δ_k only, as differential privacy needs."""
    acts_alone: ClassVar[bool] = False
    """Whether a round without updates still changes the model."""
    local_half: ClassVar[type[LocalRule] | None] = None
    """The local rule that this server rule needs; None: any."""
    sum_limits: ClassVar[Mapping[str, float]] = {}
    """Largest |value| of uploads in a sum; for others see `SecureSettings.upload_limit`."""

    def sampling_fault(self, sampling: str, participation: float) -> str:
        """Return why vehicles may not be called by this `Training.sampling`; empty if they may."""
        return ""

    averages: ClassVar[bool] = False
    """Whether the rule needs the mean update only, so that a defence may screen updates first."""

    @property
    def mechanism(self) -> GaussianMechanism | None:
        """The mechanism of differential privacy of a round; None: there is none."""
        return None

    @property
    def noise_deviation(self) -> float:
        """Standard deviation of the noise on every coordinate of a round's sum; 0: none."""
        return 0.0

    @property
    def contribution_limit(self) -> float:
        """Largest |value| of a contribution, noise included; 0: not known."""
        return 0.0

    @property
    def private(self) -> bool:
        """Return whether rounds add noise for differential privacy."""
        return self.mechanism is not None and self.mechanism.noise_multiplier > 0

    stale_reason: ClassVar[str] = ""
    """Why updates of older models cannot be aggregated; empty: they can, or see `stale_fault`."""
    adds_up: ClassVar[bool] = False
    """Whether `update` gives the same model for R updates that all equal `mean_of_sums`, as a rule
    does that is linear in the updates."""

    def stale_fault(self) -> str:
        """Return why updates of older models cannot be aggregated (FedBuff); empty if they can."""
        if self.stale_reason or self.averages or self.normalises:
            return self.stale_reason
        return f"{type(self).__name__} is defined by rounds that all start alike"

    def sum_fault(self) -> str:
        """Return why `update` needs single updates, not sums (secure aggregation); empty if not."""
        if self.averages or self.adds_up:
            return ""
        return (
            f"{type(self).__name__} does not declare that it can use sums. Set `averages` if it "
            "needs the mean displacement only, or else `adds_up`."
        )

    @property
    def counts_alike(self) -> bool:
        """Return whether every vehicle has the weight 1 rather than n_k."""
        return False

    def contribution_size(self, model: Model) -> int:
        """Return the length of `contribution`."""
        return model.layout.size

    def contribution(self, model: Model, delta: Tensor, uploads: Rows) -> Tensor:
        """Return what replaces Δ_k [D] in the weighted sum, float64."""
        return delta

    def mean_of_sums(
        self, model: Model, delta: Tensor, weight: float, uploads: Rows
    ) -> tuple[Tensor, Rows]:
        """Return (Δ [D], uploads) that replace every vehicle's, float64.

        `delta` and `uploads` are sums of weight times value, and `weight` is the sum of weights.
        """
        return delta / weight, {name: total / weight for name, total in uploads.items()}

    def state(self, model: Model) -> Rows:
        """Return the server's state before round 0, unless `begin` sets another."""
        return {}

    def begin(
        self, model: Model, weights: Tensor, draws: Callable[[int], np.random.Generator]
    ) -> Rows:
        """Return the server's state before round 0, shaped as `state`, from w_0 [D].

        `draws(j)` is the generator of the j-th additional model.
        """
        return self.state(model)

    def broadcast(self, state: Rows) -> Rows:
        """Return the message sent with the model; entries of `state` may be stacked."""
        return {}

    @abstractmethod
    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return (state, w_{t+1} [D]) from w_t [D] and the updates of a round."""


@dataclass(frozen=True, kw_only=True)
class Average(ServerRule):
    """FedAvg's server rule: the mean update, weighted by windows, in float64."""

    averages = True

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return w_t + Σ ω_k Δ_k."""
        return state, moved(weights, mean_delta(replies))


def moved(weights: Tensor, step: Tensor) -> Tensor:
    """Return w_t plus a step, added in float64 and rounded once to the type of w_t."""
    return (weights.double() + step).to(weights.dtype)


def mean_delta(replies: Replies) -> Tensor:
    """Return Σ_k (n_k / n_t) Δ_k [D], float64, times the filled share of a buffer.

    >>> import torch
    >>> windows, rng = torch.tensor([1.0, 3.0], dtype=torch.float64), np.random.default_rng(0)
    >>> mean_delta(Replies(torch.tensor([[1.0], [-1.0]]), windows, 2, 4.0, rng))
    tensor([-0.5000], dtype=torch.float64)
    """
    return weighted_sum(replies.filled * replies.shares, replies.deltas)


PIECE = 2**18
"""Numbers that a core adds at a time: 2 MB in float64."""


def weighted_sum(weights: Tensor, vectors: Tensor) -> Tensor:
    """Return Σ_k weights_k · vectors_k [D], of weights [R] and vectors [R, D], float64."""
    if len(vectors) > 1 and vectors.stride(0) == 0:  # one vector that stands for all
        return weights.sum() * vectors[0].double()

    def summed(some: Tensor) -> Tensor:
        return some.to(torch.float64, copy=True).mul_(weights[:, None]).sum(dim=0)

    if not vectors.is_cpu:
        return summed(vectors)
    # In pieces that stay in the cache. Of a power of two, so that torch, which takes the columns
    # beyond the last whole vectors in another order, gives every sum the bits it has in one piece.
    columns = 1 << max(8, (PIECE // max(1, len(vectors))).bit_length() - 1)
    pieces = torch.split(vectors, columns, dim=1)
    return torch.cat(run_on_cores(summed, pieces)) if len(pieces) > 1 else summed(vectors)
