"""Server rules, and FedAvg's: the average weighted by each vehicle's windows.

McMahan et al., AISTATS 2017; paper `eq:fedavg_agg`, written with displacements Δ_k = w_k - w_t:

    w_{t+1} = w_t + Σ_k (n_k / n_t) Δ_k      over the vehicles whose reply counted
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.methods.rule import LocalRule, Rows
from fedwatt.models import Model
from fedwatt.randomness import SystemNoise
from fedwatt.settings import Tunable
from fedwatt.threads import spread


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
    """n, the training windows of all of them."""
    rng: np.random.Generator | SystemNoise
    """The server's own random numbers of this round, for rules that add noise."""
    uploads: Rows = field(default_factory=dict)
    """What the local rules uploaded besides Δ_k, each [R, ...]."""
    participation: float = 1.0
    """C, the share of vehicles called in a round, or the probability with which each one is."""
    filled: float = 1.0
    """Share of a buffer's places that hold these replies; an empty place counts as Δ = 0. A round
    has no places to leave empty."""
    noised: bool = False
    """Whether vehicles have added the round's noise themselves, to a sum that these stand for."""
    steps: Tensor | None = None
    """H_k, [R], where it is known."""

    @property
    def shares(self) -> Tensor:
        """p_k = n_k / n_t, [R], float64."""
        return self.windows / self.windows.sum()

    def mean(self, upload: str) -> Tensor:
        """Return Σ p_k x_k of one uploaded number x_k per vehicle, [1], float64."""
        return (self.shares * self.uploads[upload].double()).sum().reshape(1)


@dataclass(frozen=True)
class GaussianMechanism:
    """The noise that a round adds for differential privacy, as an accountant needs it."""

    noise_multiplier: float
    """z, the noise's standard deviation over the most that one vehicle can move the sum."""
    amplified: bool
    """Whether ε counts on the sampling of vehicles being secret and Poisson."""
    delta: float
    """δ at which ε is stated; 0: K^-1.1."""


@dataclass(frozen=True, kw_only=True)
class ServerRule(Tunable, ABC):
    """Turns replies into the next model; what it keeps between rounds goes in and comes out."""

    normalises: ClassVar[bool] = False
    """Whether each vehicle's ‖a_k‖₁ is to be uploaded as "accumulation"."""
    only_deltas: ClassVar[bool] = False
    """Whether nothing but Δ_k may go up, as differential privacy needs."""
    acts_alone: ClassVar[bool] = False
    """Whether a round without any reply still changes the model."""
    local_half: ClassVar[type[LocalRule] | None] = None
    """The local rule without which this server means nothing."""
    sum_limits: ClassVar[Mapping[str, float]] = {}
    """Largest |value| of an upload in a sum, where it is known; else `SecureSettings` tells."""

    def sampling_fault(self, sampling: str, participation: float) -> str:
        """Return the reason why vehicles cannot be called in this way (`Training.sampling`); empty
        if they can.
        """
        return ""

    adds_the_mean: ClassVar[bool] = False
    """Whether the next model is the last one plus the sum of weighted displacements, divided by
    `divisor`, and nothing else: a vehicle can then tell from the sum that a model was made of it.
    """
    averages: ClassVar[bool] = False
    """Whether replies count through the mean of their displacements alone, so that a defence may
    screen them first."""

    @property
    def mechanism(self) -> GaussianMechanism | None:
        """The mechanism of differential privacy that a round is; None: it is none."""
        return None

    @property
    def noise_deviation(self) -> float:
        """Standard deviation of the noise on every coordinate of a round's sum; 0: none."""
        return 0.0

    @property
    def contribution_limit(self) -> float:
        """Largest |value| of a contribution with a vehicle's share of the noise; 0: not known."""
        return 0.0

    @property
    def private(self) -> bool:
        """Return whether rounds add noise for differential privacy."""
        return self.mechanism is not None and self.mechanism.noise_multiplier > 0

    stale_reason: ClassVar[str] = ""
    """Why replies to older models cannot be taken in, in the rule's own words."""
    adds_up: ClassVar[bool] = False
    """Whether `update` makes the same model of R replies that all equal `mean_of_sums` as of the
    replies themselves, which a rule that is linear in its replies does."""

    def stale_fault(self) -> str:
        """Return the reason why replies to older models cannot be taken in (FedBuff); empty if they
        can.
        """
        if self.stale_reason or self.averages or self.normalises:
            return self.stale_reason
        return f"{type(self).__name__} is defined by rounds that all start alike"

    def sum_fault(self) -> str:
        """Return the reason why `update` cannot do with sums over vehicles (secure aggregation);
        empty if it can.
        """
        if self.averages or self.adds_up:
            return ""
        return (
            f"it is not known how to make {type(self).__name__} from sums. Servers that need only "
            "the mean displacement say so by `averages`, and others that can do by `adds_up`."
        )

    @property
    def counts_alike(self) -> bool:
        """Return whether every vehicle has the weight 1 rather than n_k."""
        return False

    def contribution_size(self, model: Model) -> int:
        """Return the length of `contribution`."""
        return model.layout.size

    def contribution(self, model: Model, delta: Tensor, uploads: Rows) -> Tensor:
        """Return a vehicle's contribution to the sum in place of Δ_k [D], times its weight;
        float64.
        """
        return delta

    def mean_of_sums(
        self, model: Model, delta: Tensor, weight: float, uploads: Rows
    ) -> tuple[Tensor, Rows]:
        """Return the mean (Δ [D], uploads) of all vehicles from their sums, float64.

        `delta` and `uploads` are sums over the vehicles of weight times value, and `weight` is the
        sum of the weights.
        """
        return delta / weight, {name: total / weight for name, total in uploads.items()}

    def divisor(self, weight: float, expected: float) -> float:
        """Return the divisor of a sum of displacements, from Σ w_k and the expected number of
        calls.
        """
        return weight

    def state(self, model: Model) -> Rows:
        """Return the server's state before round 0, unless `begin` sets another."""
        return {}

    def begin(
        self, model: Model, weights: Tensor, draws: Callable[[int], np.random.Generator]
    ) -> Rows:
        """Return the server's state before round 0, shaped as `state`, from w_0 [D].

        `draws(j)` are random numbers for whatever else has to begin somewhere.
        """
        return self.state(model)

    def broadcast(self, state: Rows) -> Rows:
        """Return what is broadcast besides the model; entries of `state` may be stacked."""
        return {}

    @abstractmethod
    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return (state, w_{t+1} [D]) from w_t [D] and replies (none if the rule `acts_alone`)."""


@dataclass(frozen=True, kw_only=True)
class Average(ServerRule):
    """The mean displacement, weighted by windows, summed in float64 and cast once."""

    averages: ClassVar[bool] = True
    adds_the_mean: ClassVar[bool] = True

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return w_t + Σ p_k Δ_k."""
        return state, moved(weights, mean_delta(replies))


def moved(weights: Tensor, step: Tensor) -> Tensor:
    """Return w_t plus a float64 step, cast back once."""
    return (weights.double() + step).to(weights.dtype)


def mean_delta(replies: Replies) -> Tensor:
    """Return Σ_k (n_k / n_t) Δ_k [D], float64, times the share of a buffer that the replies fill.

    >>> import torch
    >>> windows, rng = torch.tensor([1.0, 3.0], dtype=torch.float64), np.random.default_rng(0)
    >>> mean_delta(Replies(torch.tensor([[1.0], [-1.0]]), windows, 2, 4.0, rng))
    tensor([-0.5000], dtype=torch.float64)
    """
    return weighted_sum(replies.filled * replies.shares, replies.deltas)


PIECE: Final = 2**18
"""Numbers of replies that a core adds up at a time: 2 MB in float64."""


def weighted_sum(weights: Tensor, vectors: Tensor) -> Tensor:
    """Return Σ_k weights_k · vectors_k, from [R] and [R, D] to [D], float64."""
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
    return torch.cat(spread(summed, pieces)) if len(pieces) > 1 else summed(vectors)
