"""The noise of a private round as shares that its vehicles add, so that no single party knows it.

Kairouz, Liu and Steinke, ICML 2021 ("The distributed discrete Gaussian mechanism"). Vehicle k puts
its clipped Δ̃_k on a grid of step γ and adds a discrete Gaussian of variance (z·c)²/t before its
masks, t the survivors without whom there is no sum. R ≥ t survivors then have

    Σ_k Δ̃_k + noise of variance (R/t)·(z·c)²  ≥  (z·c)²

whoever drops out. The server sees that sum and nothing else, and adds no noise of its own.

- *Rounding*: Δ̃_k is first shortened by √D·γ/2, so that it is still no longer than c on the grid.
- *Sums* of R discrete Gaussians differ from one discrete Gaussian by a factor of at most
  exp(10 Σ_{k<R} exp(-2π²(σ/γ)² k/(k+1))) (their theorem 1). With σ ≥ 4 γ, which is asked for here,
  that is exp(R · 1e-67): nothing.
- *Liars*: f vehicles that leave their shares out take f/t of the variance away.
- *Sampling*: under masks nobody sees who added what, so Poisson sampling needs no server. Each
  vehicle adds its Δ̃_k with probability q, drawn from its own operating system, and noise in any
  case. The server does not know who was drawn, unless it looks at how long a reply took, and cannot
  choose a single vehicle.
"""

from math import sqrt
from secrets import randbits
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedwatt.errors import DataError
from fedwatt.methods.server import ServerRule
from fedwatt.randomness import LEAST_DEVIATION, discrete_gaussian, grid_of_noise, on_grid

if TYPE_CHECKING:
    from fedwatt.federation import Training
    from fedwatt.methods import Method


def vehicles_draw(method: "Method", training: "Training") -> bool:
    """Tell whether the vehicles of a secure sum draw for themselves."""
    return method.server.private and training.sampling == "poisson"


def drawn(probability: float) -> bool:
    """Draw whether a vehicle takes part, which it does with this probability."""
    return randbits(53) * 2.0**-53 < probability


def with_share(server: ServerRule, contribution: Tensor, survivors: int, step: float) -> Tensor:
    """Return a vehicle's contribution [D] with its share of the noise, in multiples of `step`.

    `survivors` is t, the fewest vehicles that a sum is made of.
    """
    deviation = server.noise_deviation / sqrt(survivors)
    if deviation == 0:
        return contribution
    grid = grid_of_noise(deviation, step)
    if deviation < LEAST_DEVIATION * grid:
        raise DataError(
            f"Noise of {deviation:.3g} is too fine for steps of {grid:.3g}. Set secure.bits = 64."
        )
    size = len(contribution)
    clip = float(contribution.norm())
    shorter = max(0.0, 1 - sqrt(size) * grid / (2 * clip)) if clip else 0.0
    exact = on_grid(shorter * contribution.numpy(), grid)
    return torch.from_numpy(exact + discrete_gaussian(deviation / grid, size) * grid)
