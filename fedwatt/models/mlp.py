"""The default predictor: a multilayer perceptron over the flattened window.

Two hidden layers with ReLU, as in the paper's section on models; 64 and 32 units by default.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.models.layout import Layout
from fedwatt.models.loss import Loss
from fedwatt.models.model import Model, Parts, uniform


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
        names = [f"hidden{i + 1}" for i in range(len(self.hidden))] + ["output"]
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (fan_in, fan_out) in zip(names, pairwise(widths), strict=True):
            shapes[f"{name}.weight"] = (fan_in, fan_out)
            shapes[f"{name}.bias"] = (fan_out,)
        return Layout(shapes)

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
        """Gradient [..., D], backward by hand: half the time of autograd for a stack of MLPs.

        Every product is written where it belongs in the flat gradient, so nothing is copied.
        """
        lead, batch = weights.shape[:-1], labels.shape[-1]
        gradient = torch.empty(weights.shape, dtype=weights.dtype, device=weights.device)
        # One leading axis, as bmm wants it; all of these are views.
        here = self.layout.split(weights.reshape(-1, self.layout.size))
        there = self.layout.split(gradient.view(-1, self.layout.size))
        inputs = [windows.reshape(-1, batch, self.window * self.features)]
        layers = [f"hidden{i + 1}" for i in range(len(self.hidden))]
        for layer in layers:
            inputs.append(_affine(here, layer, inputs[-1]).relu_())
        prediction = self.head(here, inputs[-1]).view(*lead, batch)
        error = (share * loss.slope(prediction, labels)).view(-1, batch, 1)
        for layer, x in zip(reversed([*layers, "output"]), reversed(inputs), strict=True):
            torch.bmm(x.mT, error, out=there[f"{layer}.weight"])
            torch.sum(error, dim=1, out=there[f"{layer}.bias"])
            if layer != "hidden1":
                # x is a ReLU's output: its sign is 1 where the unit was on and 0 where it was off.
                error = torch.bmm(error, here[f"{layer}.weight"].mT).mul_(x.sign())
        return gradient

    def along(self, weights: Tensor, direction: Tensor, offsets: Tensor, windows: Tensor) -> Tensor:
        """Predictions [J, batch] on the line; the widest product is computed only twice.

        The first layer is linear in the offset, x(W + sD) = xW + s·xD, so its two products serve
        all points; the narrow layers behind it are batched over them.
        """
        x = windows.flatten(-2)
        here, there = self.layout.split(weights), self.layout.split(direction)
        s = offsets[:, None, None]
        first = _affine(here, "hidden1", x) + s * _affine(there, "hidden1", x)
        # From here on the J models of the line are an ordinary stack.
        line = {
            name: here[name] + s.view(-1, *[1] * here[name].dim()) * there[name]
            for name in here
            if not name.startswith("hidden1.")
        }
        x = torch.relu(first)
        for i in range(1, len(self.hidden)):
            x = torch.relu(_affine(line, f"hidden{i + 1}", x))
        return self.head(line, x)


def _affine(parts: Parts, layer: str, x: Tensor) -> Tensor:
    """x[..., batch, in] @ W[..., in, out] + b[..., 1, out]."""
    return x @ parts[f"{layer}.weight"] + parts[f"{layer}.bias"].unsqueeze(-2)
