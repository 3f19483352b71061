"""What a vehicle changes of its reply by chance, so that two sums do not differ by one vehicle.

Inside a sum under masks a vehicle with `hiding` ν > 0 sends, in the place of Δ and its weight n,

    Δ + ν ‖Δ‖ g / √D      g ~ N(0, I)
    n u                   u ~ U(1/2, 3/2)

trained on batches of its own drawing. Its error sums count for a share of it, U(0.9, 1.1). All of
that comes anew from its operating system for every sum. A server that leaves one of R vehicles out
of a second sum is left with the noise of all others, about ν √(2R) lengths of Δ, and with weights
of which n_k cannot be told. In the mean over R vehicles it is ν/√R lengths in a direction at
random, as sampling batches makes it anyway.

This is no differential privacy: its scale is the vehicle's own, and who asks q times is left with
1/√q of it. What it leaves of the attacks, and what it costs, is measured (docs/privacy.md).
"""

from math import sqrt
from secrets import randbits
from typing import Final

import torch
from torch import Tensor

from fedwatt.methods.rule import Rows
from fedwatt.noise import SystemNoise

LIGHTEST: Final = 0.5
"""Least share of its windows that a vehicle weighs; the largest is as far above 1."""
ERRORS: Final = 0.1
"""How far from 1 the share may be that a vehicle's error sums count for."""


def own_seed() -> int:
    """A seed for batches that nobody else knows."""
    return randbits(64)


def noisy(delta: Tensor, uploads: Rows, hiding: float) -> tuple[Tensor, Rows]:
    """Δ [D] and whatever else is as long as it, each with `hiding` times its length of noise.

    Shorter uploads are counts or masks, which rules divide by.
    """
    long = {name: own for name, own in uploads.items() if own.numel() >= delta.numel()}
    blurred = {name: _blurred(own, hiding) for name, own in long.items()}
    return _blurred(delta, hiding), {**uploads, **blurred}


def _blurred(values: Tensor, hiding: float) -> Tensor:
    drawn = torch.from_numpy(SystemNoise().standard_normal(values.numel())).view(values.shape)
    deviation = hiding * float(values.double().norm()) / sqrt(values.numel())
    return (values.double() + deviation * drawn).to(values.dtype)


def chance_share() -> float:
    """How much of a vehicle its error sums count for, between 0.9 and 1.1."""
    return 1 + ERRORS * (2 * randbits(53) * 2.0**-53 - 1)


def chance_weight(windows: int) -> int:
    """A weight between half of `windows` and half as many more, at least 1."""
    share = LIGHTEST + 2 * (1 - LIGHTEST) * randbits(53) * 2.0**-53
    return max(1, round(windows * share))
