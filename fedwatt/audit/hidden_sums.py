"""What a server that knows of `privacy.hiding` makes of sums over vehicles that hide.

It asks for a sum of all vehicles and for one without the victim, q times, takes the mean m of all,
and what the difference has beyond it,

    d = (Σ_q (S - S′) - m Σ_q (W - W′)) / q,      ‖noise of d‖² ≈ ν² ‖m‖² (2R - 1) E[u²] / q

with weights W in units of a vehicle's. As it knows how long the noise is, it takes so much of d as
is probably true (James and Stein, 1961): Δ̂ = m + max(0, 1 - ‖noise‖²/‖d‖²) d. With little to be
known that is the fleet's mean, which a curious server has as well.
"""

from math import sqrt
from typing import Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.deploy.policy import Policy
from fedwatt.privacy.hiding import LIGHTEST

SQUARED_WEIGHT: Final = 1 + (1 - LIGHTEST) ** 2 / 3
"""E[u²] of a weight by chance."""


def hidden_sum(deltas: Tensor, times: int, rng: np.random.Generator) -> tuple[Tensor, float]:
    """(Σ w_k Δ̃_k [D], Σ w_k) over vehicles [R, D] that weigh alike and hide, of so many `times`."""
    weights = torch.from_numpy(rng.uniform(LIGHTEST, 2 - LIGHTEST, (times, len(deltas))))
    deltas, size = deltas.double(), deltas.shape[-1]
    squares = (weights.square().sum(dim=0) * deltas.square().sum(dim=-1)).sum()
    # Normal numbers add up to a normal number, so the noise of all times is drawn once.
    noise = Policy().hiding * sqrt(float(squares) / size) * rng.standard_normal(size)
    return weights.sum(dim=0) @ deltas + torch.from_numpy(noise), float(weights.sum())


def differenced(deltas: Tensor, victim: int, pairs: int, rng: np.random.Generator) -> Tensor:
    """The victim's Δ [D] as the server works it out from `pairs` of sums over vehicles [R, D]."""
    vehicles = len(deltas)
    others = deltas[[k for k in range(vehicles) if k != victim]]
    with_it, weight = hidden_sum(deltas, pairs, rng)
    without_it, less = hidden_sum(others, pairs, rng)
    mean = with_it / weight
    beyond = (with_it - without_it - (weight - less) * mean) / pairs
    noise = Policy().hiding ** 2 * (2 * vehicles - 1) * SQUARED_WEIGHT / pairs
    noise *= float(mean.square().sum())
    length = float(beyond.square().sum())
    return mean + max(0.0, 1 - noise / length) * beyond if length else mean
