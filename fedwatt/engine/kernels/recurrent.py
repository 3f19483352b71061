"""GRUs and LSTMs faster than by autograd: a step in C, and whole windows in a GPU's kernel."""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from fedwatt.engine.kernels.recurrent_gpu import CellShape, WholeWindow, whole_window
from fedwatt.models import GRU, LSTM, Loss
from fedwatt.models.model import Fill, Kernel, ModelStep, Parts, register

SOURCE = Path(__file__).with_suffix(".c")

BLOCKS_KEPT = {GRU: 4, LSTM: 6}  # blocks [hidden, batch] that recurrent.c keeps of a second


class RecurrentKernel(Kernel):
    """The fast paths of `GRU` and `LSTM` themselves, not of subclasses."""

    def represent(self, model: GRU | LSTM, parts: Parts, windows: Tensor) -> Tensor | None:
        """Return the state after the last second, on a GPU."""
        window_kernel = _whole_window(model, parts["input.weight"], windows)
        if window_kernel is None:
            return None
        tensors = [parts[name] for name in model.layout.shapes if not name.startswith("output")]
        lead = parts["input.bias"].dim() - 1
        return window_kernel.last_state(
            torch.cat([part.flatten(lead) for part in tensors], -1), windows
        )

    def fill(
        self, model: GRU | LSTM, weights: Tensor, windows: Tensor, gradient: Tensor, loss: Loss
    ) -> Fill | None:
        """Forward and back in one kernel each, on a GPU."""
        window_kernel = _whole_window(model, weights, windows)
        if window_kernel is None:
            return None
        return partial(
            window_kernel.fill,
            layout=model.layout,
            weights=weights,
            windows=windows,
            gradient=gradient,
            loss=loss,
        )

    def step(self, model: GRU | LSTM, batch: int, window: int) -> ModelStep:
        """Return a step in recurrent.c; scratch memory holds z_t and the gates of all seconds."""
        size = model.hidden * batch
        rows = model.hidden + model.features + 1
        seconds = (window + 1) * rows * batch + window * BLOCKS_KEPT[type(model)] * size
        single = 2 * 4 * model.hidden * rows + 7 * size + batch
        return ModelStep(
            f"#define {type(model).__name__}\n{SOURCE.read_text()}",
            (model.features, model.hidden, window),
            seconds + single,
            reads=window * model.features,
            multiplies=True,
        )

    def step_numbers(self, model: GRU | LSTM, batch: int) -> int:
        """Return the numbers of one second: the others are written once and read once."""
        return 2 * model.layout.size + 12 * model.hidden * batch


def _whole_window(model: GRU | LSTM, weights: Tensor, windows: Tensor) -> WholeWindow | None:
    shape = CellShape(type(model).__name__, model.features, model.hidden)
    return whole_window(shape, weights, windows)


for kind in (GRU, LSTM):
    register(kind, RecurrentKernel())
