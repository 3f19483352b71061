"""Client-level differential privacy: clipped updates, a fixed denominator and Gaussian noise.

McMahan et al., ICLR 2018, arXiv 1710.06963; adaptive clipping after Andrew et al., NeurIPS 2021,
arXiv 1905.03871. With vehicles called independently with probability q (Poisson sampling) and K of
them in all:

    Δ̃_k     = Δ_k min(1, c/‖Δ_k‖₂)
    w_{t+1} = w_t + [ Σ_k Δ̃_k + N(0, z²c² I) ] / (qK)

The sum moves by at most c when one vehicle comes or goes, whatever its windows: weights are uniform
and the denominator is public. A round without participants adds its noise as well: one without
noise would reveal that there were none. All uploads are inside the clipped vector, or the method is
refused.

Adaptive clipping moves c toward a quantile γ of the norms ‖Δ_k‖, with b_k = 1 where ‖Δ_k‖ ≤ c (not
clipped), so that c rises when too many are clipped:

    b̃   = 1/2 + [ Σ_k (b_k - 1/2) + N(0, σ_b²) ] / (qK)
    c   ← c exp(-η_c (b̃ - γ))
    z_Δ = (z⁻² - (2σ_b)⁻²)^(-1/2)

z_Δ is the noise multiplier of the sum of updates, chosen so that both releases together have the
multiplier z; σ_b is the larger of qK/20 and z, where the authors have qK/20.
"""

from dataclasses import dataclass
from math import exp, inf

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import SettingError, check
from fedwatt.methods.defence import bounded
from fedwatt.methods.rule import Rows
from fedwatt.methods.server import GaussianMechanism, Replies, ServerRule, moved, weighted_sum
from fedwatt.models import Model
from fedwatt.randomness import GRID, SystemNoise, on_grid
from fedwatt.settings import choice, number

BEYOND = 12.0
"""Limit of noise in standard deviations; more has a probability of 1e-33."""
OUTSIDE = (
    "differential privacy covers only what is inside the clipped vector Δ_k, and everything a "
    "method uploads must be inside it or the method is refused"
)


@dataclass(frozen=True, kw_only=True)
class PrivateAverage(ServerRule):
    """The uniform mean of clipped updates, with noise; ε comes from `fedwatt.privacy`."""

    noise_multiplier: float = number(1.0, "[0, inf)", fixed="chosen with ε")
    """z, the noise's standard deviation over c; 0 is no privacy at all."""
    clip_norm: float = number(
        1.0, "(0, inf]", fixed="chosen with ε: c bounds the influence of a vehicle"
    )
    """c; with adaptive clipping, where it starts."""
    clipping: str = choice("fixed", "adaptive")
    """"fixed", or "adaptive": c follows a quantile of the updates' norms."""
    clip_quantile: float = number(0.5, "(0, 1)", fixed="the authors' median")
    """γ, the share of vehicles that adaptive clipping leaves whole."""
    clip_rate: float = number(0.2, "(0, inf)", fixed="the authors' value")
    """η_c"""
    count_noise: float = number(0.0, "[0, inf)", fixed="derived where it is 0")
    """σ_b, noise on the number of vehicles left whole; 0: the larger of q·K/20 and z."""
    amplified: bool = True
    """Whether ε counts on the sampling being secret and Poisson; without it, ε is that of q = 1."""
    privacy_delta: float = number(
        0.0, "[0, 1)", "; 0 is K^-1.1", fixed="what the guarantee is stated at"
    )
    """δ of the guarantee (ε, δ); 0: K^-1.1, a little below one over the number of vehicles."""

    only_deltas = True
    acts_alone = True

    def __post_init__(self) -> None:
        super().__post_init__()
        clips = self.clip_norm < inf or (self.noise_multiplier == 0 and self.clipping == "fixed")
        check(self, "clip_norm", clips, "finite where there is noise or adaptive clipping")
        enough = self.count_noise == 0 or self.count_noise > self.noise_multiplier / 2
        allowed = f"0 or above noise_multiplier/2 = {self.noise_multiplier / 2:g}"
        check(self, "count_noise", enough, allowed)

    def sampling_fault(self, sampling: str, participation: float) -> str:
        """Return why the accountant does not cover this sampling of vehicles; empty if it does."""
        private = self.noise_multiplier > 0 and self.amplified
        if private and sampling != "poisson" and participation < 1:
            return (
                "ε rests on Poisson sampling, and this calls a fixed number of vehicles. Set "
                "training.sampling = 'poisson', or amplified = false to account with q = 1."
            )
        return ""

    @property
    def mechanism(self) -> GaussianMechanism:
        """The mechanism of a round: Poisson sampling and Gaussian noise; z = 0 has infinite ε."""
        return GaussianMechanism(self.noise_multiplier, self.amplified, self.privacy_delta)

    @property
    def counts_alike(self) -> bool:
        """Always true: one vehicle must not move the sum by more than c."""
        return True

    def sum_fault(self) -> str:
        """Return why adaptive clipping does not work with secure sums; empty if it is off."""
        if self.clipping == "fixed":
            return ""
        return (
            "adaptive clipping counts on the server which Δ_k are longer than c, and a secure sum "
            "hides them. Use clipping = 'fixed'."
        )

    @property
    def noise_deviation(self) -> float:
        """Standard deviation z·c of the noise, which vehicles of a secure sum add in shares."""
        return self.noise_multiplier * self.clip_norm if self.noise_multiplier else 0.0

    @property
    def contribution_limit(self) -> float:
        """c plus 12 standard deviations of noise."""
        return self.clip_norm + BEYOND * self.noise_deviation if self.noise_multiplier else 0.0

    def contribution(self, model: Model, delta: Tensor, uploads: Rows) -> Tensor:
        """Return Δ̃_k, the update clipped to the length c."""
        return bounded(delta[None], self.clip_norm)[0]

    def state(self, model: Model) -> Rows:
        """Return c where clipping adapts it, otherwise nothing."""
        if self.clipping == "fixed":
            return {}
        return {"clip": torch.tensor(self.clip_norm, dtype=torch.float64)}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return w_t + [Σ Δ̃_k + noise] / (q·K), and the next c."""
        if replies.uploads:
            raise SettingError(f"{' and '.join(replies.uploads)} would be uploaded: {OUTSIDE}.")
        expected = replies.participation * replies.population
        norms = replies.deltas.double().norm(dim=-1)
        clip = state["clip"].item() if state else self.clip_norm
        if replies.noised:
            return state, moved(weights, replies.deltas.double().sum(dim=0) / expected)
        total = weighted_sum((clip / norms).clamp(max=1.0), replies.deltas)
        deviation = self.delta_noise(expected) * clip if self.noise_multiplier else 0.0
        if deviation:
            total = _with_noise(total, deviation, clip, replies.rng)
        if state:
            unclipped_surplus = float((norms <= clip).double().sub(0.5).sum())
            if self.noise_multiplier:
                unclipped_surplus += self.count_deviation(expected) * replies.rng.standard_normal()
            fraction = 0.5 + unclipped_surplus / expected
            moved_clip = clip * exp(-self.clip_rate * (fraction - self.clip_quantile))
            state = {"clip": torch.full_like(state["clip"], moved_clip)}
        return state, moved(weights, total / expected)

    def count_deviation(self, expected: float) -> float:
        """Return σ_b, the noise on the count of unclipped updates; `expected` is q·K."""
        return self.count_noise or max(expected / 20, self.noise_multiplier)

    def delta_noise(self, expected: float) -> float:
        """Return z_Δ, the noise on the sum over c; above z with adaptive clipping.

        >>> round(PrivateAverage(clipping="adaptive", count_noise=1.0).delta_noise(6), 4)  # √(4/3)
        1.1547
        """
        z = self.noise_multiplier
        if self.clipping == "fixed":
            return z
        return float((z**-2 - (2 * self.count_deviation(expected)) ** -2) ** -0.5)


def _with_noise(
    total: Tensor, deviation: float, clip: float, rng: np.random.Generator | SystemNoise
) -> Tensor:
    """Return a sum [D] of vectors of length `clip` or less, with noise on every coordinate.

    A simulation repeats its noise, which is therefore no secret. A server's noise is from its
    operating system, and sum and noise are whole numbers of one step; as rounding may lengthen a
    vector by half a step a coordinate, the sum is first made shorter by as much.
    """
    normal = torch.from_numpy(np.asarray(rng.standard_normal(len(total))))
    if isinstance(rng, SystemNoise):
        step = deviation * GRID
        shorter = max(0.0, 1 - len(total) ** 0.5 * step / (2 * clip))
        exact = on_grid(shorter * total.cpu().numpy(), step)
        return torch.from_numpy(exact + on_grid(deviation * normal.numpy(), step)).to(total.device)
    return total + deviation * normal.to(total.device)
