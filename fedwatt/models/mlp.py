"""The default predictor: a multilayer perceptron over the flattened window.

Two hidden layers with ReLU, as in the paper's section on models; 64 and 32 units by default.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.models.layout import Layout
from fedwatt.models.lines import followed
from fedwatt.models.loss import Loss
from fedwatt.models.model import Fill, Model, ModelInC, Parts, filled, overridden, uniform

SOURCE: Final = Path(__file__).with_suffix(".c")


@dataclass(frozen=True)
class MLP(Model):
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
        for name, (fan_in, fan_out) in zip(self._layers, pairwise(widths), strict=True):
            shapes[f"{name}.weight"] = (fan_in, fan_out)
            shapes[f"{name}.bias"] = (fan_out,)
        return Layout(shapes)

    def input_fault(self, window: int, features: int) -> str:
        """The first matrix has a row for every number of a window."""
        if (self.window, self.features) == (window, features):
            return ""
        return f"it was made for windows of {self.window} samples by {self.features} features"

    def prefixes(self) -> tuple[Model, ...]:
        """The first hidden layer, the first two, and so on, each with an output layer."""
        return tuple(replace(self, hidden=self.hidden[: n + 1]) for n in range(len(self.hidden)))

    @property
    def _layers(self) -> list[str]:
        return [*(f"hidden{i + 1}" for i in range(len(self.hidden))), "output"]

    @property
    def spectral_matrix(self) -> str:
        """The last hidden matrix."""
        return f"hidden{len(self.hidden)}.weight"

    def initial(self, rng: np.random.Generator) -> Tensor:
        """U(-1/√fan_in, 1/√fan_in) for weights and biases, PyTorch's default for Linear."""
        bounds = {}
        for name in self.layout.shapes:
            layer = name.partition(".")[0]
            bounds[name] = self.layout.shapes[f"{layer}.weight"][0] ** -0.5
        return uniform(rng, self.layout, bounds)

    def represent(self, parts: Parts, windows: Tensor) -> Tensor:
        """Last hidden activation, after its ReLU."""
        x = windows.flatten(-2)
        for i in range(len(self.hidden)):
            x = torch.relu(_affine(parts, f"hidden{i + 1}", x))
        return x

    def head(self, parts: Parts, representation: Tensor) -> Tensor:
        """Linear output, scalar."""
        return _affine(parts, "output", representation).squeeze(-1)

    def gradient(
        self, weights: Tensor, windows: Tensor, labels: Tensor, share: Tensor, loss: Loss
    ) -> Tensor:
        """Gradient [..., D], backward by hand: half the time of autograd for a stack of MLPs."""
        if overridden(self, "prepared", "represent", "head"):
            return super().gradient(weights, windows, labels, share, loss)
        return filled(self, weights, windows, labels, share, loss)

    def prepared(self, weights: Tensor, windows: Tensor, gradient: Tensor, loss: Loss) -> Fill:
        """Every product is written where it belongs in the flat gradient, so nothing is copied."""
        if overridden(self, "prepared", "represent", "head"):
            return super().prepared(weights, windows, gradient, loss)
        here, there = self.layout.split(weights), self.layout.split(gradient)
        stack, batch = windows.shape[:2]
        inputs, errors = [windows.flatten(-2)], []
        for width in self.hidden:
            inputs.append(weights.new_empty((stack, batch, width)))
            errors.append(weights.new_empty((stack, batch, width)))
        biases = [here[f"{layer}.bias"].unsqueeze(-2) for layer in self._layers]
        matrices = [here[f"{layer}.weight"] for layer in self._layers]
        prediction = weights.new_empty((stack, batch))
        output, offset = matrices[-1].mT, here["output.bias"]
        # Behind the last ReLU as before it: what comes of each hidden layer and goes into the next.
        forward = list(zip(biases, inputs, matrices, inputs[1:], strict=False))
        backward = [
            (there[f"{layer}.weight"], there[f"{layer}.bias"], x.mT, error, x, below, matrix.mT)
            for layer, x, error, below, matrix in zip(
                self._layers,
                inputs,
                [*errors, prediction.unsqueeze(-1)],
                [None, *errors],
                matrices,
                strict=True,
            )
        ][::-1]

        def fill(labels: Tensor, share: Tensor) -> None:
            for bias, x, matrix, out in forward:
                torch.baddbmm(bias, x, matrix, out=out).relu_()
            # The one column of the output as a sum: a product with it would round differently in
            # a stack of one. The last layer's error is not needed yet and lends its memory.
            torch.mul(inputs[-1], output, out=errors[-1])
            torch.sum(errors[-1], dim=-1, out=prediction).add_(offset)
            torch.mul(loss.slope(prediction, labels), share, out=prediction)
            for weight, bias, turned, error, x, below, matrix in backward:
                torch.bmm(turned, error, out=weight)
                torch.sum(error, dim=1, out=bias)
                if below is not None:
                    # The output's error has one column: an outer product, not worth a bmm.
                    product = torch.mul if error.shape[-1] == 1 else torch.bmm
                    product(error, matrix, out=below)
                    # What the ReLU let through, in one pass.
                    torch.ops.aten.threshold_backward.grad_input(below, x, 0, grad_input=below)

        return fill

    def in_c(self, batch: int, window: int) -> ModelInC:
        """See mlp.c: lines, two blocks of memory for each hidden layer, and a matrix turned."""
        sizes = (len(self.hidden), self.window * self.features, *self.hidden)
        blocks = [2 * batch, *(batch * width for width in self.hidden for _ in range(2))]
        turned = max((a * b for a, b in pairwise(self.hidden)), default=0)
        # Each begins where a line of the cache does, 16 numbers apart at most.
        work = sum(blocks) + 16 * len(blocks) + turned
        return ModelInC(SOURCE.read_text(), sizes, work, reads=self.window * self.features)

    def step_numbers(self, batch: int) -> int:
        """Weights, gradient and the gathered windows; the activations are small beside them."""
        return 2 * self.layout.size + batch * self.window * self.features

    def along(
        self, weights: Tensor, directions: Tensor, offsets: Tensor, windows: Tensor
    ) -> Tensor:
        """Predictions [..., J, batch] on lines: see `lines`."""
        if overridden(self, "along", "represent", "head"):
            return super().along(weights, directions, offsets, windows)
        lines = directions.reshape(-1, len(weights))
        predictions = followed(self.layout, weights, lines, offsets, windows.flatten(-2))
        return predictions.view(*directions.shape[:-1], len(offsets), len(windows))


def _affine(parts: Parts, layer: str, x: Tensor) -> Tensor:
    """x[..., batch, in] @ W[..., in, out] + b[..., 1, out]."""
    return x @ parts[f"{layer}.weight"] + parts[f"{layer}.bias"].unsqueeze(-2)
