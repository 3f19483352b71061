"""The default predictor: a multilayer perceptron over the flattened window.

Two hidden layers with ReLU, as in the paper's section on models; 64 and 32 units by default.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.models.model import Layout, LinearHead, Model, Parts, affine, uniform


@dataclass(frozen=True)
class MLP(LinearHead):
    """window · features → hidden[0] → ... → 1, ReLU between."""

    window: int
    features: int
    hidden: tuple[int, ...] = (64, 32)

    def __post_init__(self) -> None:
        check(self, "window", self.window >= 1, "at least 1")
        check(self, "features", self.features >= 1, "at least 1")
        positive = len(self.hidden) >= 1 and all(width >= 1 for width in self.hidden)
        check(self, "hidden", positive, "one or more widths of at least 1, such as (64, 32)")

    @cached_property
    def layout(self) -> Layout:
        """hidden1.weight [in, 64], hidden1.bias [64], ..., output.weight, output.bias."""
        widths = (self.window * self.features, *self.hidden, 1)
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (fan_in, fan_out) in zip(self.layers, pairwise(widths), strict=True):
            shapes[f"{name}.weight"] = (fan_in, fan_out)
            shapes[f"{name}.bias"] = (fan_out,)
        return Layout(shapes)

    def input_fault(self, window: int, features: int) -> str:
        """Return why windows of another size do not fit: the first layer has a row per number."""
        if (self.window, self.features) == (window, features):
            return ""
        return f"it was made for windows of {self.window} samples by {self.features} features"

    def prefixes(self) -> tuple[Model, ...]:
        """Return the first hidden layer, the first two, and so on, each with an output layer."""
        return tuple(replace(self, hidden=self.hidden[: n + 1]) for n in range(len(self.hidden)))

    @property
    def layers(self) -> list[str]:
        """Names of the layers, from input to output."""
        return [*(f"hidden{i + 1}" for i in range(len(self.hidden))), "output"]

    @property
    def spectral_matrix(self) -> str:
        """The last hidden matrix."""
        return f"hidden{len(self.hidden)}.weight"

    def initial(self, rng: np.random.Generator) -> Tensor:
        """Draw U(-1/√fan_in, 1/√fan_in) for weights and biases, PyTorch's default for Linear."""
        bounds = {}
        for name in self.layout.shapes:
            layer = name.partition(".")[0]
            bounds[name] = self.layout.shapes[f"{layer}.weight"][0] ** -0.5
        return uniform(rng, self.layout, bounds)

    def represent(self, parts: Parts, windows: Tensor) -> Tensor:
        """Return the last hidden activation, after its ReLU."""
        x = windows.flatten(-2)
        for i in range(len(self.hidden)):
            x = torch.relu(affine(parts, f"hidden{i + 1}", x))
        return x
