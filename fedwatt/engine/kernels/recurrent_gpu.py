"""GRUs and LSTMs on an NVIDIA GPU: all seconds of a window in one kernel.

Step by step, torch launches some fifteen short kernels for every second of a window, forward and
back. recurrent.cu goes through the whole window in one, with the weights in the registers of
one multiprocessor, and once more to come back. What it computes is what the models say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedwatt.engine.kernels.cuda_compiler import Launch, cuda_kernels
from fedwatt.models.model import Layout, Loss

SOURCE = Path(__file__).with_name("recurrent.cu")

TILE = 8  # windows of a block of threads, a multiple of four

LARGEST = 64
"""Hidden units, and features, up to which a thread's registers hold its weights in float32 (in
float64 some of them lie beside); torch serves larger networks."""

REAL = {
    torch.float32: "typedef float real;\n#define EXP expf\n#define TANH tanhf\n",
    torch.float64: "typedef double real;\n#define EXP exp\n#define TANH tanh\n",
}

KEPT = {"GRU": 5, "LSTM": 6}  # numbers of a unit and second that the way back needs

GATES = {"GRU": 3, "LSTM": 4}


@dataclass(frozen=True)
class CellShape:
    """The shape that the kernels are compiled for; `kind` is "GRU" or "LSTM"."""

    kind: str
    features: int
    hidden: int

    @property
    def size(self) -> int:
        """Weights of the cell, those before the output in the layout."""
        return (self.features + self.hidden + 2) * GATES[self.kind] * self.hidden

    def source(self, dtype: torch.dtype) -> str:
        """Return recurrent.cu with this cell filled in."""
        sizes = {
            "HIDDEN": self.hidden,
            "FEATURES": self.features,
            "TILE": TILE,
            "KEPT": KEPT[self.kind],
        }
        defined = "".join(f"#define {name} {value}\n" for name, value in sizes.items())
        return f"{REAL[dtype]}#define {self.kind}\n{defined}{SOURCE.read_text()}"


@dataclass(frozen=True)
class WholeWindow:
    """The two kernels and how they are called; P vehicles, `weights` [P, at least `cell.size`]."""

    cell: CellShape
    launch: Mapping[str, Launch]

    def forward(
        self, weights: Tensor, windows: Tensor, *, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the state [P, batch, hidden] after `windows` [P, batch, seconds, features].

        And what `backward` needs of every second, if it is to be kept.
        """
        vehicles, batch, seconds, _ = windows.shape
        last = windows.new_empty((vehicles, batch, self.cell.hidden))
        unit = (KEPT[self.cell.kind], self.cell.hidden, TILE)
        stored = windows.new_empty((vehicles, -(-batch // TILE), seconds, *unit)) if keep else None
        self._run("forward", weights, windows, stored, last)
        return last, stored

    def backward(self, weights: Tensor, windows: Tensor, stored: Tensor, slope: Tensor) -> Tensor:
        """Return the gradient [P, tiles, cell.size] of each tile, from the last state's [P, batch,
        hidden].
        """
        gradient = windows.new_empty((*stored.shape[:2], self.cell.size))
        self._run("backward", weights, windows, stored, slope.contiguous(), gradient)
        return gradient

    def _run(self, name: str, weights: Tensor, windows: Tensor, *tensors: Tensor | None) -> None:
        vehicles, batch, seconds, _ = windows.shape
        if vehicles * batch == 0:  # a GPU refuses a kernel without blocks
            return
        # A kernel reads on where torch would step: a vehicle's weights have to lie in one piece,
        # and a window's seconds, too.
        if weights.stride(-1) != 1:
            weights = weights.contiguous()
        if windows.stride()[2:] != (windows.shape[3], 1):
            windows = windows.contiguous()
        blocks = (-(-batch // TILE), vehicles)
        threads = 4 * self.cell.hidden
        lie = (weights, weights.stride(0), windows, windows.stride(0), windows.stride(1))
        self.launch[name](blocks, threads, *lie, *tensors, batch, seconds)

    def fill(
        self,
        labels: Tensor,
        share: Tensor,
        *,
        layout: Layout,
        weights: Tensor,
        windows: Tensor,
        gradient: Tensor,
        loss: Loss,
    ) -> None:
        """Write the gradient [P, D] of the loss at `weights` [P, D]."""
        here = layout.split(weights)
        gradients = layout.split(gradient)
        last, stored = self.forward(weights, windows, keep=True)
        assert stored is not None
        prediction = torch.bmm(last, here["output.weight"]).squeeze(-1) + here["output.bias"]
        error = loss.slope(prediction, labels).mul_(share)
        torch.bmm(last.mT, error.unsqueeze(-1), out=gradients["output.weight"])
        torch.sum(error, dim=1, keepdim=True, out=gradients["output.bias"])
        slope = error.unsqueeze(-1) * here["output.weight"].mT
        tiles = self.backward(weights, windows, stored, slope)
        torch.sum(tiles, dim=1, out=gradient[:, : self.cell.size])

    def last_state(self, weights: Tensor, windows: Tensor) -> Tensor:
        """Return the state [..., batch, hidden] after `windows` [..., batch, seconds, features].

        `weights` [..., cell.size]; autograd can follow it back to them.
        """
        lead = np.broadcast_shapes(weights.shape[:-1], windows.shape[:-3])
        flat = weights.expand(*lead, -1).reshape(prod(lead), -1)
        rows = windows.expand(*lead, -1, -1, -1).reshape(prod(lead), *windows.shape[-3:])
        last: Tensor = _Followed.apply(flat, rows, self)  # type: ignore[no-untyped-call]
        return last.view(*lead, *last.shape[1:])


class _Followed(torch.autograd.Function):
    """`WholeWindow` for autograd."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, windows: Tensor, window_kernel: WholeWindow) -> Tensor:
        last, stored = window_kernel.forward(weights, windows, keep=ctx.needs_input_grad[0])
        ctx.whole = window_kernel
        ctx.save_for_backward(weights, windows, stored)
        return last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None]:
        weights, windows, stored = ctx.saved_tensors
        return ctx.whole.backward(weights, windows, stored, slopes[0]).sum(dim=1), None, None


def whole_window(cell: CellShape, weights: Tensor, windows: Tensor) -> WholeWindow | None:
    """Return the kernels for a model's weights and windows, or None where torch has to do it."""
    if not (weights.is_cuda and fits(cell, weights, windows)):
        return None
    return _whole_window(cell, weights.dtype, weights.device.index)


def fits(cell: CellShape, weights: Tensor, windows: Tensor) -> bool:
    """Return whether the kernels can do it. Where something is wrong torch says so; they would read
    on.
    """
    alike = weights.device == windows.device and weights.dtype == windows.dtype
    shaped = windows.shape[-1] == cell.features and windows.shape[-2] > 0
    small = max(cell.hidden, cell.features) <= LARGEST
    # They know the way back to the weights, not to the windows.
    return alike and shaped and small and weights.dtype in REAL and not windows.requires_grad


@cache
def _whole_window(cell: CellShape, dtype: torch.dtype, device: int) -> WholeWindow | None:
    launch = cuda_kernels(cell.source(dtype), ("forward", "backward"), device)
    return None if launch is None else WholeWindow(cell, launch)
