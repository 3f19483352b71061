"""An MLP on straight lines through its weights, nearly all of it without a product a point.

As long as no unit switches between the ends of a line, a layer's output is a polynomial in the
offset s, of one degree more than its input: (x₀ + s·x₁)(W + s·D) = x₀W + s(x₀D + x₁W) + s²·x₁D.
Where some unit might switch, what its switching changes is added.

In torch each step of this is short, and what it finds goes through the memory. On a processor, and
where there is a compiler (`native`), a vehicle is one call of lines.c, which works in the cache.
"""

import ctypes
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.engine.kernels.c_compiler import compiled
from fedwatt.models import Layout
from fedwatt.models.model import Parts

SOURCE = Path(__file__).with_suffix(".c")
BLOCK = {"cpu": 2**19, "cuda": 2**26}
"""Numbers of a layer that torch computes at a time where units switch: 4 MB, and half a GB."""


def followed(
    layout: Layout, weights: Tensor, lines: Tensor, offsets: Tensor, windows: Tensor
) -> Tensor:
    """Return the predictions [M, J, batch] at `weights` [D] + s·`lines` [M, D] for `offsets` s [J].

    `layout` is an MLP's: matrix [in, out] and bias [out] of each layer; `windows` are flat
    [batch, inputs].
    """
    arguments = (weights, lines, offsets, windows)
    plain = all(each.is_cpu and each.dtype == torch.float64 for each in arguments)
    # Where shapes are wrong torch says so; C would read on.
    fits = (weights.shape[-1], windows.shape[-1]) == (layout.size, widths_of(layout)[0])
    recorded = torch.is_grad_enabled() and any(each.requires_grad for each in arguments)
    library = compiled(SOURCE.read_text("utf-8")) if plain and fits and not recorded else None
    if library is None:
        return by_torch(layout, *arguments)
    return by_compiler(library, layout, *(each.contiguous() for each in arguments))


def widths_of(layout: Layout) -> list[int]:
    """Return inputs, units of each hidden layer, 1.

    >>> widths_of(Layout({"a.weight": (8, 4), "a.bias": (4,), "b.weight": (4, 1), "b.bias": (1,)}))
    [8, 4, 1]
    """
    matrices = [shape for shape in layout.shapes.values() if len(shape) == 2]
    return [matrices[0][0], *(units for _, units in matrices)]


class LineTask(ctypes.Structure):
    """`task_t` of lines.c."""

    _fields_: ClassVar = [
        *((name, ctypes.c_void_p) for name in ("width", "begin", "weights", "offsets")),
        *((name, ctypes.c_int64) for name in ("layers", "size", "points")),
        ("reach", ctypes.c_double),
    ]


def by_compiler(
    library: ctypes.CDLL,
    layout: Layout,
    weights: Tensor,
    lines: Tensor,
    offsets: Tensor,
    windows: Tensor,
) -> Tensor:
    """Compute `followed` in lines.c."""
    widths = widths_of(layout)
    sizes = [(inputs + 1) * units for inputs, units in pairwise(widths)]
    width = torch.tensor(widths)
    begin = torch.tensor([0, *accumulate(sizes[:-1])])
    task = LineTask(
        *(each.data_ptr() for each in (width, begin, weights, offsets)),
        len(widths) - 2,
        len(weights),
        len(offsets),
        float(offsets.abs().max()),
    )
    predictions = weights.new_empty((len(lines), len(offsets), len(windows)))
    function = library.along
    pointer = ctypes.c_void_p
    number = ctypes.c_int64
    function.argtypes = [ctypes.POINTER(LineTask), pointer, number, pointer, number, pointer]
    enough: int = function(
        task, lines.data_ptr(), len(lines), windows.data_ptr(), len(windows), predictions.data_ptr()
    )
    if not enough:
        raise MemoryError
    return predictions


def by_torch(
    layout: Layout, weights: Tensor, lines: Tensor, offsets: Tensor, windows: Tensor
) -> Tensor:
    """Compute `followed` in torch."""
    here = layout.split(weights)
    directions = layout.split(lines)
    first, *later_layers = (
        name.removesuffix(".weight") for name in here if name.endswith(".weight")
    )
    reach = float(offsets.abs().max())
    layers = [_affine_terms(here, directions, first, [windows[None]])]
    switching = _may_switch(layers[0], reach)
    smooth = ~switching.any(dim=-1)
    for layer in later_layers:
        on = (layers[-1][0] > 0).to(weights.dtype)
        layers.append(_affine_terms(here, directions, layer, [term * on for term in layers[-1]]))
        if layer != later_layers[-1]:
            smooth &= ~_may_switch(layers[-1], reach).any(dim=-1)
    last = [term.expand_as(layers[-1][-1]) for term in layers[-1]]
    predictions = _powers(offsets, len(last)) @ torch.cat(last, dim=-1).mT
    bent = (~smooth).nonzero()
    powers = _powers(offsets, len(layers[1]))
    # Not too many at a time, so that a wide radius does not fill the memory.
    width = len(here[f"{later_layers[-1]}.weight"])
    few = max(1, BLOCK[weights.device.type] // (len(offsets) * width))
    for begin in range(0, len(bent), few):
        line, row = bent[begin : begin + few].unbind(-1)
        predictions[line, :, row] = _bent(
            (here, directions), later_layers, layers[:2], switching[line, row], line, row, powers
        )
    return predictions


def _bent(
    parts: tuple[Parts, Parts],
    names: Sequence[str],
    layers: Sequence[Sequence[Tensor]],
    switching: Tensor,
    line: Tensor,
    row: Tensor,
    powers: Tensor,
) -> Tensor:
    """Return the predictions [N, J] for N pairs of a line and a window in which units switch.

    A unit z of the first layer counts as on·z in the polynomial of the second. What is missing,
    c = relu(z) - on·z, is 0 for all but those few that switch, and enters by their rows of W + s·D
    alone. From there on layers are computed point by point; they are the narrow ones. `names` are
    those of the layers from the second on; `switching` [N, width] says which units of the first
    layer may switch, `powers` [J, ...] are 1, s, s², ...
    """
    here, directions = parts
    first, second = ([terms[0][0, row], *(t[line, row] for t in terms[1:])] for terms in layers)
    s = powers[:, 1:2]
    # As many units for every pair; where fewer switch, others of which c is 0.
    units = switching.int().topk(int(switching.sum(dim=-1).max())).indices
    z0, z1 = (term.gather(1, units)[:, None] for term in first)
    z = torch.addcmul(z0, s, z1)
    c = z.relu() - z * (z0 > 0)
    weight = f"{names[0]}.weight"
    rows = [here[weight][units], directions[weight][line[:, None], units]]
    factors = torch.cat([powers.expand(len(line), -1, -1), c, s * c], dim=-1)
    x = torch.bmm(factors, torch.cat([torch.stack(second, dim=1), *rows], dim=1))
    for layer in names[1:]:
        weight = f"{layer}.weight"
        bias = f"{layer}.bias"
        # x(W + s·D) + b + s·d, with both matrices in one product.
        still = here[weight].expand(len(line), -1, -1)
        both = torch.bmm(x.relu_(), torch.cat([still, directions[weight][line]], dim=-1))
        width = len(here[bias])
        x = torch.addcmul(both[..., :width], s, both[..., width:])
        x += torch.addcmul(here[bias], s, directions[bias][line][:, None])
    return x.squeeze(-1)


def _powers(offsets: Tensor, count: int) -> Tensor:
    """Return the powers 1, s, s², ... [J, count]."""
    return torch.stack([offsets**i for i in range(count)], dim=-1)


def _may_switch(terms: Sequence[Tensor], reach: float) -> Tensor:
    """Return a mask [M, batch, width] of units whose Σ sⁱ xᵢ, |s| <= `reach`, might change sign."""
    change = sum(term.abs() * reach ** (i + 1) for i, term in enumerate(terms[1:]))
    return terms[0].abs() < change


def _affine_terms(here: Parts, directions: Parts, layer: str, terms: list[Tensor]) -> list[Tensor]:
    """Return the coefficients of the powers of s in (Σ sⁱ xᵢ)(W + s·D) + b + s·d, each [M, batch,
    out].

    W and b are in `here`, D and d of M lines in `there`. What is the same for all lines has an M
    of 1: x₀ always, and all that comes of it and W.
    """
    weight = here[f"{layer}.weight"]
    direction = directions[f"{layer}.weight"]
    still = [term @ weight for term in terms]
    moved = [torch.bmm(term.expand(len(direction), -1, -1), direction) for term in terms]
    result = [still[0], *(a + b for a, b in zip(still[1:], moved, strict=False)), moved[-1]]
    result[0] = result[0] + here[f"{layer}.bias"]
    result[1] = result[1] + directions[f"{layer}.bias"].unsqueeze(-2)
    return result
