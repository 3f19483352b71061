"""One-layer GRU and LSTM with a linear head, written with free leading axes.

The gates, their order and their biases are those of torch.nn.GRU and torch.nn.LSTM, transposed:
`input.weight` [features, gates·hidden] is weight_ih_l0ᵀ, `recurrent.weight` is weight_hh_l0ᵀ.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.models.model import Layout, LinearHead, Model, Parts, affine, uniform


@dataclass(frozen=True)
class Recurrent(LinearHead):
    """A cell that goes through a window second by second, and a linear output."""

    features: int
    hidden: int = 32

    gates: ClassVar[int]

    def __post_init__(self) -> None:
        check(self, "features", self.features >= 1, "at least 1")
        check(self, "hidden", self.hidden >= 1, "at least 1")

    def prefixes(self) -> tuple[Model, ...]:
        """Return this model: it is a single block."""
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
        """Return no error: windows may have any length."""
        return "" if self.features == features else f"it was made for {self.features} features"

    @property
    def spectral_matrix(self) -> str:
        """The recurrent matrix."""
        return "recurrent.weight"

    def initial(self, rng: np.random.Generator) -> Tensor:
        """Draw U(-1/√hidden, 1/√hidden) everywhere, PyTorch's default."""
        return uniform(
            rng, self.layout, dict.fromkeys(self.layout.shapes, float(self.hidden) ** -0.5)
        )

    def represent(self, parts: Parts, windows: Tensor) -> Tensor:
        """Return the hidden state after the last second, [..., batch, hidden]."""
        # One product for all seconds: the inputs do not depend on the state.
        seconds = windows.shape[-2]
        inputs = affine(parts, "input", windows.flatten(-3, -2))
        inputs = inputs.view(*inputs.shape[:-2], -1, seconds, inputs.shape[-1])
        weight = parts["recurrent.weight"]
        bias = parts["recurrent.bias"].unsqueeze(-2)
        state = self.initial_state(inputs)
        for now in inputs.unbind(-2):
            state = self.advance(state, now, state[0] @ weight + bias)
        return state[0]

    @abstractmethod
    def initial_state(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the state before the first second: zeros [..., batch, hidden], the hidden state
        first.
        """

    @abstractmethod
    def advance(
        self, state: tuple[Tensor, ...], inputs: Tensor, recurrent: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the state one second later, from the two gate sums [..., batch, gates·hidden]."""


@dataclass(frozen=True)
class GRU(Recurrent):
    """h' = (1 - z)·n + z·h with r, z = σ(·), n = tanh(x_n + r·h_n)."""

    gates: ClassVar[int] = 3

    def initial_state(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return h = 0."""
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
class LSTM(Recurrent):
    """c' = f·c + i·g, h' = o·tanh(c') with i, f, o = σ(·), g = tanh(·)."""

    gates: ClassVar[int] = 4

    def initial_state(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return h = c = 0."""
        zeros = inputs.new_zeros((*inputs.shape[:-2], self.hidden))
        return zeros, zeros

    def advance(
        self, state: tuple[Tensor, ...], inputs: Tensor, recurrent: Tensor
    ) -> tuple[Tensor, ...]:
        """Apply input, forget, cell and output gates, in torch's order."""
        _, c = state
        i, f, g, o = (inputs + recurrent).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
