"""Displacements Δ_k in fewer bytes: a rounded number for each weight, a scale for each block.

    Δ + e  =  s_b q  +  e'        s_b = max |Δ + e| in block b over the largest q

q is an int8 or a float16. What rounding lost, e', stays on board and is added to the next Δ before
that is rounded (error feedback: Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019), so
the sum of what a vehicle sends differs from the sum of what it moved by one e and no more. A
vehicle keeps e with the round that it belongs to (`memory`), so a reply that did not count leaves
no trace, and the same question has the same answer.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy.messages import ArrayField, ReplyField, ValueField
from fedwatt.methods import Method
from fedwatt.models import MLP
from fedwatt.runs.deployment import FULL

BLOCK: Final = 256
"""Weights that share a scale, which adds 4 bytes to their 256 or 512."""
LARGEST: Final = {"float16": 2.0**15, "int8": 127.0}
"""Largest q; that of float16 leaves the small weights of a block all their 11 bits."""
SCALES: Final = "scales"
ROUNDING: Final = "rounding"
RESIDUAL: Final = "residual"


class Update(NamedTuple):
    """A displacement as it is sent, and what that leaves behind."""

    arrays: dict[str, NDArray[Any]]  # q [D] and the scales of its blocks
    residual: Tensor  # e', [D]
    rounding: float  # ‖e'‖ over ‖Δ + e‖


def rounded(delta: Tensor, residual: Tensor, kind: str) -> Update:
    """Δ [D] as numbers of this kind; `residual` [D] is what rounding lost before.

    >>> update = rounded(torch.tensor([1.0, -0.3]), torch.tensor([0.0, 0.3]), "int8")
    >>> update.arrays["delta"].tolist(), update.rounding
    ([127, 0], 0.0)
    """
    wanted = delta.double().numpy() + residual.double().numpy()
    blocks = _blocks(np.abs(wanted))
    with np.errstate(over="ignore", invalid="ignore"):
        scales = (blocks.max(axis=1) / LARGEST[kind]).astype(np.float32)
        steps = np.where(scales > 0, scales, 1.0).astype(np.float64)
        q = _blocks(wanted) / steps[:, None]
        if kind == "int8":
            q = np.nan_to_num(np.rint(q))
        q = q.clip(-LARGEST[kind], LARGEST[kind]).ravel()[: len(wanted)].astype(kind)
    arrays = {"delta": q, SCALES: scales}
    lost = wanted - expanded(arrays).astype(str(delta.dtype).removeprefix("torch."))
    # A displacement that is not finite is sent as such, refused, and leaves nothing behind.
    lost = lost if np.isfinite(lost).all() else np.zeros_like(lost)
    length = float(np.linalg.norm(wanted))
    rounding = float(np.linalg.norm(lost)) / length if 0 < length < np.inf else 0.0
    return Update(arrays, torch.from_numpy(lost).to(delta.dtype), rounding)


def expanded(arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Δ [D] of a reply, rounded or not; not finite where a scale or a number is not."""
    q = arrays["delta"]
    if SCALES not in arrays:
        return q
    with np.errstate(over="ignore", invalid="ignore"):
        found = _blocks(q.astype(np.float64)) * arrays[SCALES].astype(np.float64)[:, None]
    flat: NDArray[np.float64] = found.ravel()[: len(q)]
    return flat


def _blocks(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers [D] as [blocks, BLOCK], the last one filled up with 0."""
    return np.pad(numbers, (0, -len(numbers) % BLOCK)).reshape(-1, BLOCK)


def update_fields(kind: str, size: int) -> dict[str, ReplyField]:
    """What a reply says besides where its Δ of `size` weights is rounded."""
    if kind == FULL:
        return {}
    return {
        SCALES: ArrayField((-(-size // BLOCK),), "float32", "what its rounded numbers stand for"),
        ROUNDING: ValueField(float, "share of Δ_k that rounding left for the next one"),
    }


def update_fault(method: Method, kind: str) -> str:
    """Why a method's displacements cannot be rounded; empty if they can, or are not.

    >>> from fedwatt.methods import get
    >>> update_fault(get("fednova"), "int8")
    ''
    >>> print(update_fault(get("fedel"), "int8"))
    its vehicles hand up 'trained' besides Δ_k, numbers that go with the Δ_k of one round, and
    rounding carries a rest of it into the next. Set deploy.update_type = "full".
    """
    uploads = method.uploads(method.adapted(MLP(1, 1, (1,))))
    many = [name for name, row in uploads.items() if row.dim()]
    if kind == FULL or not many:
        return ""
    return (
        f"its vehicles hand up '{many[0]}' besides Δ_k, numbers that go with the Δ_k of one round, "
        f'and rounding carries a rest of it into the next. Set deploy.update_type = "{FULL}".'
    )


def told(kind: str, size: int, dtype: torch.dtype, losses: Sequence[float]) -> str:
    """What rounding saves and costs, for the log.

    >>> told("int8", 1000, torch.float32, [0.004, 0.006])
    'Δ as int8: 1,016 bytes a reply in place of 4,000; rounding took 0.50 % of Δ, at most 0.60 %'
    """
    bytes_sent = size * np.dtype(kind).itemsize + 4 * -(-size // BLOCK)
    known = [loss for loss in losses if 0 <= loss <= 1] or [0.0]
    return (
        f"Δ as {kind}: {bytes_sent:,} bytes a reply in place of {size * dtype.itemsize:,}; "
        f"rounding took {100 * float(np.mean(known)):.2f} % of Δ, at most {100 * max(known):.2f} %"
    )
