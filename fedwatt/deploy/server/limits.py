"""Limits on what one vehicle can do to a mean: its weight, and the length of its reply.

With n̄ the (lower) median of the vehicles' windows and ℓ that of the lengths of a round's replies:

    w_k = min(n_k, c_n n̄)        ‖Δ_k‖ ≤ c_Δ ℓ

So one of K vehicles with n̄ windows each moves the mean by at most c_n c_Δ ℓ / (K - 1 + c_n). Honest
vehicles stay below both where c = 5: in twelve rounds on VED the longest reply was 2.3 medians,
though one vehicle took twenty times as many steps as another, and none had 5 medians of windows.
"""

from collections.abc import Mapping, Sequence
from statistics import median_low

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.errors import RunError
from fedwatt.metrics import SUMS, ErrorSums
from fedwatt.metrics.sums import FloatArray, VectorLayout


def capped(windows: Sequence[float], everybody: Sequence[float], cap: float) -> NDArray[np.float64]:
    """Return the weights of vehicles with so many `windows` among `everybody`.

    >>> capped([900, 4_000_000], [900, 1100, 1000, 4_000_000], 5.0).tolist()
    [900.0, 5000.0]
    """
    counts = np.array(windows, dtype=np.float64)
    return np.minimum(counts, cap * median_low(everybody)) if everybody else counts


def shortened(
    vectors: Tensor, usable: NDArray[np.bool_], bound: float
) -> tuple[Tensor, NDArray[np.bool_]]:
    """Return [N, D] with long rows shortened to the limit, and which rows were.

    Rows that are not `usable` are no measure for the others.
    """
    lengths = vectors.double().norm(dim=-1).numpy()
    if not usable.any():
        return vectors, usable
    most = bound * median_low(lengths[usable].tolist())
    # Where most replies are 0 there is no measure for the others.
    long = usable & (lengths > most) & (most > 0)
    factor = torch.from_numpy(np.where(long, most / np.where(lengths > 0, lengths, 1.0), 1.0))
    # In float64: a reply of 1e30 would lose the factor in float32.
    short = (vectors.double() * factor[:, None]).to(vectors.dtype)
    return torch.where(torch.from_numpy(long)[:, None], short, vectors), long


def scaled_down(sums: ErrorSums, most: float) -> ErrorSums:
    """Return error sums that count for at most so many windows, with the same mean errors.

    >>> scaled_down(ErrorSums(windows=1000, squared_wh2=4e5), 10).rmse
    20.0
    """
    share = min(1.0, most / sums.windows) if sums.windows else 1.0
    if share == 1.0:
        return sums
    return ErrorSums(*(SUMS[name](getattr(sums, name) * share) for name in SUMS))


def refuse_impossible_weight(
    layout: VectorLayout, sums: Mapping[str, FloatArray], survivors: int
) -> None:
    """Raise unless R ≤ Σ w_k ≤ R · limit, for w_k of at least one window each.

    One vehicle can still bend a sum that nobody can look into, but not end the run with it.
    """
    (weight,) = sums["weight"]
    _, heaviest = layout.fields["weight"]
    rounding = survivors * layout.steps["weight"] / 2
    if not survivors - rounding <= weight <= survivors * heaviest + rounding:
        raise RunError(
            f"{survivors} vehicles add up to a weight of {weight:g}, and {survivors} to "
            f"{survivors * heaviest:g} is possible. One of them is at fault."
        )


def refuse_long_mean(delta: Tensor, limit: float) -> None:
    """Raise if the mean displacement [D] is longer than vehicles send.

    Honest vehicles shorten their replies, so a longer mean is the work of one that does not. What
    passes moves the model by at most `limit`.
    """
    length = float(delta.double().norm())
    if not length <= limit:
        raise RunError(
            f"the mean of a sum is {length:g} long, and secure.norm_limit is {limit:g}. One of its "
            "vehicles is at fault."
        )
