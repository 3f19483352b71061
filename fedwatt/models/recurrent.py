"""One-layer GRU and LSTM with a linear head, written with free leading axes.

The gates, their order and their biases are those of torch.nn.GRU and torch.nn.LSTM, transposed:
`input.weight` [features, gates·hidden] is weight_ih_l0ᵀ, `recurrent.weight` is weight_hh_l0ᵀ.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.models.layout import Layout
from fedwatt.models.loss import Loss
from fedwatt.models.model import Fill, Model, ModelInC, Parts, filled, overridden, uniform
from fedwatt.models.recurrent_gpu import Cell, WholeWindow, whole_window
from fedwatt.models.through_time import Unrolled, UnrolledGRU, UnrolledLSTM

SOURCE: Final = Path(__file__).with_suffix(".c")

POINTS: Final = {"cpu": 4, "cuda": 128}
"""Points of lines that are evaluated side by side: as many as a core's cache holds, or a GPU."""


@dataclass(frozen=True)
class _Recurrent(Model):
    features: int
    hidden: int = 32

    gates: ClassVar[int]
    unrolled: ClassVar[type[Unrolled]]
    name_in_c: ClassVar[str]
    kept: ClassVar[int]
    """Blocks [hidden, batch] that recurrent.c keeps of a second."""

    def __post_init__(self) -> None:
        check(self, "features", self.features >= 1, "at least 1")
        check(self, "hidden", self.hidden >= 1, "at least 1")

    def prefixes(self) -> tuple[Model, ...]:
        """One block."""
        return (self,)

    @cached_property
    def layout(self) -> Layout:
        """Input, recurrent and output tensors."""
        width = self.gates * self.hidden
        return Layout(
            {
                "input.weight": (self.features, width),
                "input.bias": (width,),
                "recurrent.weight": (self.hidden, width),
                "recurrent.bias": (width,),
                "output.weight": (self.hidden, 1),
                "output.bias": (1,),
            }
        )

    def input_fault(self, window: int, features: int) -> str:
        """Windows may have any length."""
        return "" if self.features == features else f"it was made for {self.features} features"

    @cached_property
    def cell(self) -> Cell:
        """What a GPU's kernels are made for."""
        return Cell(self.name_in_c, self.features, self.hidden)

    @cached_property
    def _as_written(self) -> bool:
        """Whether this is the network that `unrolled`, C and kernels know, nothing overridden."""
        own = not overridden(self, "prepared", "represent", "head")
        return own and not overridden(self, "unrolled", "advance", "rest")

    def _whole_window(self, weights: Tensor, windows: Tensor) -> WholeWindow | None:
        return whole_window(self.cell, weights, windows) if self._as_written else None

    @property
    def spectral_matrix(self) -> str:
        """The recurrent matrix."""
        return "recurrent.weight"

    def initial(self, rng: np.random.Generator) -> Tensor:
        """U(-1/√hidden, 1/√hidden) everywhere, PyTorch's default."""
        return uniform(
            rng, self.layout, dict.fromkeys(self.layout.shapes, float(self.hidden) ** -0.5)
        )

    def head(self, parts: Parts, representation: Tensor) -> Tensor:
        """Linear output, scalar."""
        out = representation @ parts["output.weight"] + parts["output.bias"].unsqueeze(-2)
        return out.squeeze(-1)

    def represent(self, parts: Parts, windows: Tensor) -> Tensor:
        """Hidden state after the last second, [..., batch, hidden]."""
        whole = self._whole_window(parts["input.weight"], windows)
        if whole is not None:
            own = [parts[name] for name in self.layout.shapes if not name.startswith("output")]
            lead = parts["input.bias"].dim() - 1
            return whole.last_state(torch.cat([part.flatten(lead) for part in own], -1), windows)
        # One product for all seconds: the inputs do not depend on the state.
        seconds = windows.shape[-2]
        inputs = windows.flatten(-3, -2) @ parts["input.weight"] + parts["input.bias"].unsqueeze(-2)
        inputs = inputs.view(*inputs.shape[:-2], -1, seconds, inputs.shape[-1])
        weight, bias = parts["recurrent.weight"], parts["recurrent.bias"].unsqueeze(-2)
        state = self.rest(inputs)
        for now in inputs.unbind(-2):
            state = self.advance(state, now, state[0] @ weight + bias)
        return state[0]

    def gradient(
        self, weights: Tensor, windows: Tensor, labels: Tensor, share: Tensor, loss: Loss
    ) -> Tensor:
        """Gradient [..., D], backward through time by hand."""
        if not self._as_written:
            return super().gradient(weights, windows, labels, share, loss)
        return filled(self, weights, windows, labels, share, loss)

    def prepared(self, weights: Tensor, windows: Tensor, gradient: Tensor, loss: Loss) -> Fill:
        """See `through_time` and, for a GPU, `recurrent_gpu`."""
        if not self._as_written:
            return super().prepared(weights, windows, gradient, loss)
        whole = self._whole_window(weights, windows)
        if whole is not None:
            return partial(
                whole.fill,
                layout=self.layout,
                weights=weights,
                windows=windows,
                gradient=gradient,
                loss=loss,
            )
        here, there = self.layout.split(weights), self.layout.split(gradient)
        return partial(self.unrolled(here, windows, there).fill, loss=loss)

    def along(
        self, weights: Tensor, directions: Tensor, offsets: Tensor, windows: Tensor
    ) -> Tensor:
        """Predictions [..., J, batch] on lines, a few points of any of them at a time."""
        if not self._as_written:
            return super().along(weights, directions, offsets, windows)
        lines = directions.reshape(-1, len(weights))
        points = torch.cartesian_prod(torch.arange(len(lines)), torch.arange(len(offsets)))
        some = weights.repeat(min(POINTS[weights.device.type], len(points)), 1)
        predict = self._predictor(some, windows.expand(len(some), -1, -1, -1))
        predictions = weights.new_empty((len(points), len(windows)))
        for first in range(0, len(points), len(some)):
            line, offset = points[first : first + len(some)].T
            torch.addcmul(weights, offsets[offset, None], lines[line], out=some[: len(line)])
            predictions[first : first + len(line)] = predict()[: len(line)]
        return predictions.view(*directions.shape[:-1], len(offsets), len(windows))

    def _predictor(self, weights: Tensor, windows: Tensor) -> Callable[[], Tensor]:
        """Predictions [P, batch] of `weights` [P, D] as they are when it is called."""
        if self._whole_window(weights, windows) is not None:
            return partial(self.predict, weights, windows)
        networks = self.unrolled(self.layout.split(weights), windows)
        networks.read()
        return networks.predict

    def in_c(self, batch: int, window: int) -> ModelInC | None:
        """See recurrent.c: z_t and the gates of all seconds, and a few single blocks."""
        if not self._as_written:
            return None
        size, rows = self.hidden * batch, self.hidden + self.features + 1
        seconds = (window + 1) * rows * batch + window * self.kept * size
        single = 2 * 4 * self.hidden * rows + 7 * size + batch
        source = f"#define {self.name_in_c}\n{SOURCE.read_text()}"
        return ModelInC(
            source,
            (self.features, self.hidden, window),
            seconds + single,
            reads=window * self.features,
            multiplies=True,
        )

    def step_numbers(self, batch: int) -> int:
        """Those of one second: what all seconds keep is written once and read once."""
        return 2 * self.layout.size + 12 * self.hidden * batch

    @abstractmethod
    def rest(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """State before the first second: zeros [..., batch, hidden], the hidden state first."""

    @abstractmethod
    def advance(
        self, state: tuple[Tensor, ...], inputs: Tensor, recurrent: Tensor
    ) -> tuple[Tensor, ...]:
        """State one second later, from the two gate sums [..., batch, gates·hidden]."""


@dataclass(frozen=True)
class GRU(_Recurrent):
    """h' = (1 - z)·n + z·h with r, z = σ(·), n = tanh(x_n + r·h_n)."""

    gates: ClassVar[int] = 3
    unrolled: ClassVar[type[Unrolled]] = UnrolledGRU
    name_in_c: ClassVar[str] = "GRU"
    kept: ClassVar[int] = 4

    def rest(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """h = 0."""
        return (inputs.new_zeros((*inputs.shape[:-2], self.hidden)),)

    def advance(
        self, state: tuple[Tensor, ...], inputs: Tensor, recurrent: Tensor
    ) -> tuple[Tensor, ...]:
        """Reset, update and new gates, in torch's order."""
        (h,) = state
        two = 2 * self.hidden
        reset, update = torch.sigmoid(inputs[..., :two] + recurrent[..., :two]).chunk(2, dim=-1)
        new = torch.tanh(inputs[..., two:] + reset * recurrent[..., two:])
        return (new + update * (h - new),)


@dataclass(frozen=True)
class LSTM(_Recurrent):
    """c' = f·c + i·g, h' = o·tanh(c') with i, f, o = σ(·), g = tanh(·)."""

    gates: ClassVar[int] = 4
    unrolled: ClassVar[type[Unrolled]] = UnrolledLSTM
    name_in_c: ClassVar[str] = "LSTM"
    kept: ClassVar[int] = 6

    def rest(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """h = c = 0."""
        zeros = inputs.new_zeros((*inputs.shape[:-2], self.hidden))
        return zeros, zeros

    def advance(
        self, state: tuple[Tensor, ...], inputs: Tensor, recurrent: Tensor
    ) -> tuple[Tensor, ...]:
        """Input, forget, cell and output gates, in torch's order."""
        _, c = state
        i, f, g, o = (inputs + recurrent).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
