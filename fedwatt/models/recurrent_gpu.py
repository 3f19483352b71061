"""GRUs and LSTMs on an NVIDIA GPU: all seconds of a window in one kernel.

Step by step, torch tells a GPU of some fifteen short kernels for every second of a window, forward
and back. recurrent.cu goes through the whole window in one, with the weights in the registers of
one multiprocessor, and once more to come back. What it computes is what `through_time` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.models.layout import Layout
from fedwatt.models.loss import Loss
from fedwatt.nvrtc import Launch, cuda_kernels

SOURCE: Final = Path(__file__).with_name("recurrent.cu")

TILE: Final = 8
"""Windows of a block of threads; recurrent.cu says so, too."""

LARGEST: Final = 64
"""Hidden units, and features, whose weights registers can hold; torch serves larger networks."""

REAL: Final = {
    torch.float32: "typedef float real;\n#define EXP expf\n#define TANH tanhf\n",
    torch.float64: "typedef double real;\n#define EXP exp\n#define TANH tanh\n",
}


@dataclass(frozen=True)
class Cell:
    """What the kernels are compiled for."""

    features: int
    hidden: int
    lstm: bool

    @property
    def kept(self) -> int:
        """Numbers of a unit and second that the way back needs: gates, state, an LSTM's cell."""
        return 6 if self.lstm else 5

    @property
    def size(self) -> int:
        """Weights of the cell, those before the output in the layout."""
        gates = 4 if self.lstm else 3
        return (self.features + self.hidden + 2) * gates * self.hidden

    def source(self, dtype: torch.dtype) -> str:
        """recurrent.cu for this cell."""
        sizes = f"#define HIDDEN {self.hidden}\n#define FEATURES {self.features}\n"
        kind = "#define LSTM\n" if self.lstm else ""
        return REAL[dtype] + sizes + kind + SOURCE.read_text()


@dataclass(frozen=True)
class WholeWindow:
    """The two kernels and how they are called; P vehicles, `weights` [P, at least `cell.size`]."""

    cell: Cell
    launch: Mapping[str, Launch]

    def forward(
        self, weights: Tensor, windows: Tensor, *, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        """State [P, batch, hidden] after `windows` [P, batch, seconds, features].

        And what `backward` needs of every second, if it is to be kept.
        """
        vehicles, batch, seconds, _ = windows.shape
        last = windows.new_empty((vehicles, batch, self.cell.hidden))
        shape = (vehicles, -(-batch // TILE), seconds, self.cell.kept, self.cell.hidden, TILE)
        kept = windows.new_empty(shape) if keep else None
        self._run("forward", weights, windows, kept, last)
        return last, kept

    def backward(self, weights: Tensor, windows: Tensor, kept: Tensor, slope: Tensor) -> Tensor:
        """Gradient [P, tiles, cell.size] of each tile, from the last state's [P, batch, hidden]."""
        gradient = windows.new_empty((*kept.shape[:2], self.cell.size))
        self._run("backward", weights, windows, kept, slope, gradient)
        return gradient

    def _run(self, name: str, weights: Tensor, windows: Tensor, *tensors: Tensor | None) -> None:
        vehicles, batch, seconds, _ = windows.shape
        if vehicles * batch == 0:  # a GPU refuses a kernel without blocks
            return
        blocks, threads = (-(-batch // TILE), vehicles), 4 * self.cell.hidden
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
        """`through_time.Unrolled.fill`: write the gradient [P, D] at `weights` [P, D]."""
        windows = laid_out(windows)
        here, there = layout.split(weights), layout.split(gradient)
        last, kept = self.forward(weights, windows, keep=True)
        assert kept is not None
        prediction = torch.bmm(last, here["output.weight"]).squeeze(-1) + here["output.bias"]
        error = loss.slope(prediction, labels).mul_(share)
        torch.bmm(last.mT, error.unsqueeze(-1), out=there["output.weight"])
        torch.sum(error, dim=1, keepdim=True, out=there["output.bias"])
        slope = error.unsqueeze(-1) * here["output.weight"].mT
        tiles = self.backward(weights, windows, kept, slope)
        torch.sum(tiles, dim=1, out=gradient[:, : self.cell.size])

    def last_state(self, weights: Tensor, windows: Tensor) -> Tensor:
        """State [..., batch, hidden] after `windows` [..., batch, seconds, features].

        `weights` [..., cell.size]; autograd can follow it back to them.
        """
        lead = np.broadcast_shapes(weights.shape[:-1], windows.shape[:-3])
        flat = weights.expand(*lead, -1).reshape(prod(lead), -1).contiguous()
        rows = windows.expand(*lead, -1, -1, -1).reshape(prod(lead), *windows.shape[-3:])
        last: Tensor = _Followed.apply(flat, laid_out(rows), self)  # type: ignore[no-untyped-call]
        return last.view(*lead, *last.shape[1:])


class _Followed(torch.autograd.Function):
    """`WholeWindow` for autograd."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, windows: Tensor, whole: WholeWindow) -> Tensor:
        last, kept = whole.forward(weights, windows, keep=ctx.needs_input_grad[0])
        ctx.whole = whole
        ctx.save_for_backward(weights, windows, kept)
        return last

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None]:
        weights, windows, kept = ctx.saved_tensors
        tiles = ctx.whole.backward(weights, windows, kept, slopes[0].contiguous())
        return tiles.sum(dim=1), None, None


def laid_out(windows: Tensor) -> Tensor:
    """`windows` as the kernels read them: a window's seconds one by one, in one piece."""
    _, _, _, features = windows.shape
    return windows if windows.stride()[2:] == (features, 1) else windows.contiguous()


def whole_window(cell: Cell, weights: Tensor) -> WholeWindow | None:
    """The kernels for `cell` and weights of this type, or None where torch has to do it."""
    small = max(cell.hidden, cell.features) <= LARGEST
    if not (weights.is_cuda and small and weights.dtype in REAL):
        return None
    return _whole_window(cell, weights.dtype, weights.device.index)


@cache
def _whole_window(cell: Cell, dtype: torch.dtype, device: int) -> WholeWindow | None:
    launch = cuda_kernels(cell.source(dtype), ("forward", "backward"), device)
    return None if launch is None else WholeWindow(cell, launch)
