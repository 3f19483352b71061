"""The default predictor: a multilayer perceptron over the flattened window.

Two hidden layers with ReLU, as in the paper's section on models; 64 and 32 units by default.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.models.layout import Layout
from fedwatt.models.loss import Loss
from fedwatt.models.model import Fill, Model, ModelInC, Parts, filled, uniform

SOURCE: Final = Path(__file__).with_suffix(".c")
BLOCK: Final = 2**19
"""Numbers in a layer that are computed at a time when lines are followed on a CPU: 4 megabytes."""


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
        return filled(self, weights, windows, labels, share, loss)

    def prepared(self, weights: Tensor, windows: Tensor, gradient: Tensor, loss: Loss) -> Fill:
        """Every product is written where it belongs in the flat gradient, so nothing is copied."""
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
        """Predictions [..., J, batch] on lines; nearly all of them without a product a point.

        As long as no unit switches between the ends of a line, a layer's output is a polynomial in
        the offset s, of one degree more than its input: (x₀ + s·x₁)(W + s·D) = x₀W + s(x₀D + x₁W) +
        s²·x₁D. Where some unit might switch, `_bent` adds what its switching changes.
        """
        lines = directions.reshape(-1, len(weights))
        here, there = self.layout.split(weights), self.layout.split(lines)
        reach = float(offsets.abs().max())
        layers = [_affine_terms(here, there, "hidden1", [windows.flatten(-2)[None]])]
        switching = _may_switch(layers[0], reach)
        smooth = ~switching.any(dim=-1)
        for layer in self._layers[1:]:
            on = (layers[-1][0] > 0).to(weights.dtype)
            layers.append(_affine_terms(here, there, layer, [term * on for term in layers[-1]]))
            if layer != "output":
                smooth &= ~_may_switch(layers[-1], reach).any(dim=-1)
        last = [term.expand_as(layers[-1][-1]) for term in layers[-1]]
        predictions = _powers(offsets, len(last)) @ torch.cat(last, dim=-1).mT
        bent, powers = (~smooth).nonzero(), _powers(offsets, len(layers[1]))
        # On a CPU not too many at a time, so that a wide radius does not fill the memory.
        few = max(1, BLOCK // (len(offsets) * self.hidden[-1])) if weights.is_cpu else len(bent)
        for begin in range(0, len(bent), max(few, 1)):
            line, row = bent[begin : begin + few].unbind(-1)
            predictions[line, :, row] = self._bent(
                (here, there), layers[:2], switching[line, row], line, row, powers
            )
        return predictions.view(*directions.shape[:-1], len(offsets), len(windows))

    def _bent(
        self,
        parts: tuple[Parts, Parts],
        layers: Sequence[Sequence[Tensor]],
        switching: Tensor,
        line: Tensor,
        row: Tensor,
        powers: Tensor,
    ) -> Tensor:
        """Predictions [N, J] for N pairs of a line and a window (its row) in which units switch.

        A unit z of the first layer counts as on·z in the polynomial of the second. What is missing,
        c = relu(z) - on·z, is 0 for all but those few that switch, and enters by their rows of
        W + s·D alone. From there on layers are computed point by point; they are the narrow ones.
        `switching` [N, width] says which units of the first layer may switch, `powers` [J, ...] are
        1, s, s², ...
        """
        here, there = parts
        first, second = ([terms[0][0, row], *(t[line, row] for t in terms[1:])] for terms in layers)
        s = powers[:, 1:2]
        # As many units for every pair; where fewer switch, others of which c is 0.
        units = switching.int().topk(int(switching.sum(dim=-1).max())).indices
        z0, z1 = (term.gather(1, units)[:, None] for term in first)
        z = torch.addcmul(z0, s, z1)
        c = z.relu() - z * (z0 > 0)
        weight = f"{self._layers[1]}.weight"
        rows = [here[weight][units], there[weight][line[:, None], units]]
        factors = torch.cat([powers.expand(len(line), -1, -1), c, s * c], dim=-1)
        x = torch.bmm(factors, torch.cat([torch.stack(second, dim=1), *rows], dim=1))
        for layer in self._layers[2:]:
            weight, bias = f"{layer}.weight", f"{layer}.bias"
            # x(W + s·D) + b + s·d, with both matrices in one product.
            still = here[weight].expand(len(line), -1, -1)
            both = torch.bmm(x.relu_(), torch.cat([still, there[weight][line]], dim=-1))
            width = len(here[bias])
            x = torch.addcmul(both[..., :width], s, both[..., width:])
            x += torch.addcmul(here[bias], s, there[bias][line][:, None])
        return x.squeeze(-1)


def _powers(offsets: Tensor, count: int) -> Tensor:
    """1, s, s², ... [J, count]."""
    return torch.stack([offsets**i for i in range(count)], dim=-1)


def _may_switch(terms: Sequence[Tensor], reach: float) -> Tensor:
    """Units [M, batch, width] of which Σ sⁱ xᵢ, |s| <= `reach`, might change its sign."""
    change = sum(term.abs() * reach ** (i + 1) for i, term in enumerate(terms[1:]))
    return terms[0].abs() < change


def _affine_terms(here: Parts, there: Parts, layer: str, terms: list[Tensor]) -> list[Tensor]:
    """Coefficients of the powers of s in (Σ sⁱ xᵢ)(W + s·D) + b + s·d, each [M, batch, out].

    W and b are in `here`, D and d of M lines in `there`. What is the same for all lines has an M
    of 1: x₀ always, and all that comes of it and W.
    """
    weight, direction = here[f"{layer}.weight"], there[f"{layer}.weight"]
    still = [term @ weight for term in terms]
    moved = [torch.bmm(term.expand(len(direction), -1, -1), direction) for term in terms]
    result = [still[0], *(a + b for a, b in zip(still[1:], moved, strict=False)), moved[-1]]
    result[0] = result[0] + here[f"{layer}.bias"]
    result[1] = result[1] + there[f"{layer}.bias"].unsqueeze(-2)
    return result


def _affine(parts: Parts, layer: str, x: Tensor) -> Tensor:
    """x[..., batch, in] @ W[..., in, out] + b[..., 1, out]."""
    return x @ parts[f"{layer}.weight"] + parts[f"{layer}.bias"].unsqueeze(-2)
