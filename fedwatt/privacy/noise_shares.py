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
"""

from math import sqrt

import torch
from torch import Tensor

from fedwatt.errors import DataError
from fedwatt.methods.server import ServerRule
from fedwatt.randomness import LEAST_DEVIATION, discrete_gaussian, grid_of_noise, on_grid


def with_share(server: ServerRule, contribution: Tensor, survivors: int, step: float) -> Tensor:
    """Return a vehicle's contribution [D] with its share of the noise, float64, in multiples of
    `step`.

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
