"""Contributions of a method's vehicles to a sum, and the updates that sums stand for.

With w_k = n_k (or 1, where the server rule counts vehicles alike), the vector of vehicle k is w_k,
w_k times the server rule's `contribution`, which stands for Δ_k [D], and w_k times each upload:

    every method   w_k Δ_k [D], w_k
    SCAFFOLD       and w_k (c_k⁺ - c_k) [D]
    FedNova        w_k Δ_k / a_k [D], w_k, and w_k a_k
    FedEL          w_k A_k Δ_k [D], w_k, and w_k A_k [tensors]
    IFCA           w_k Δ_k in the block of its centre [J D], w_k, and w_k in that centre's place [J]
    private        Δ̃_k = Δ_k · min(1, c/‖Δ_k‖) for Δ_k, clipped there, with a share of the noise

The server rules run unchanged: they are given R replies, R the number of survivors, that are all
equal to the rule's `mean_of_sums`. Every rule above is linear in its replies once the weights are
known, so it makes the same model of these as of the replies themselves. A rule that looks at single
replies cannot, and says so by its `sum_fault`.

The noise of a private round comes in shares that its vehicles add, so that no party knows it:
Kairouz, Liu and Steinke, ICML 2021 ("The distributed discrete Gaussian mechanism"). Vehicle k puts
its clipped Δ̃_k on a grid of step γ and adds a discrete Gaussian of variance (z·c)²/t before its
masks, t the survivors without whom there is no sum. R ≥ t survivors then have

    Σ_k Δ̃_k + noise of variance (R/t)·(z·c)²  ≥  (z·c)²

whoever drops out. The server sees that sum and nothing else, and adds no noise.

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

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import DataError, SettingError
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.methods.server import ServerRule
from fedwatt.metrics.sums import FloatArray, VectorLayout
from fedwatt.models import Model
from fedwatt.privacy.secure_settings import SecureSettings
from fedwatt.randomness import LEAST_DEVIATION, discrete_gaussian, grid_of_noise, on_grid

if TYPE_CHECKING:
    from fedwatt.federation import Training


def secure_fault(method: Method) -> str | None:
    """Return the reason why a method cannot do with sums; None if it can.

    >>> from fedwatt.methods import get
    >>> secure_fault(get("fo-ri-fedavg"))
    >>> print(secure_fault(get("fedavg@krum")))
    Krum compares single replies, and a secure sum hides them. Leave out the defence, or do without
    secure aggregation.
    """
    if method.defence is not None:
        return (
            f"{type(method.defence).__name__} compares single replies, and a secure sum hides "
            "them. Leave out the defence, or do without secure aggregation."
        )
    return method.server.sum_fault() or None


def reply_layout(
    method: Method, model: Model, settings: SecureSettings, *, vehicles: int
) -> VectorLayout:
    """Return the vector of a round with `vehicles` called; `model` as the method's rules adapted
    it.
    """
    fault = secure_fault(method)
    if fault:
        raise SettingError(f"Method '{method.name}' with secure aggregation: {fault}")
    heaviest = 1.0 if method.server.counts_alike else float(settings.windows_limit)
    size = method.server.contribution_size(model)
    largest = method.server.contribution_limit or settings.delta_limit
    fields = {"weight": (1, heaviest), "delta": (size, heaviest * largest)}
    for name, template in method.uploads(model).items():
        limit = method.server.sum_limits.get(name, settings.upload_limit)
        fields[name] = (template.numel(), heaviest * limit)
    return VectorLayout(fields, vehicles=vehicles, bits=settings.bits)


def reply_values(
    method: Method,
    model: Model,
    delta: Tensor,
    windows: float,
    uploads: Rows,
    layout: VectorLayout,
    survivors: int = 1,
) -> dict[str, FloatArray]:
    """Return the contribution of one vehicle, from Δ_k [D], its windows and its uploads.

    `survivors` are the fewest that a sum is made of, by which noise for privacy is shared out.
    A vehicle with more windows than the layout has room for weighs as much as there is room for.
    """
    _, heaviest = layout.fields["weight"]
    weight = min(1.0 if method.server.counts_alike else float(windows), heaviest)
    values = {name: value.detach().cpu().double() for name, value in uploads.items()}
    contribution = method.server.contribution(model, delta.detach().cpu().double(), values)
    step = layout.steps["delta"]
    values["delta"] = with_share(method.server, contribution, survivors, step)
    weighted = {name: (weight * value).numpy() for name, value in values.items()}
    return {"weight": np.array([weight]), **weighted}


def vehicles_draw(method: Method, training: "Training") -> bool:
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
