"""The interface of a model, its losses, and kernels: faster code for a model's exact class.

A model is a frozen description; its weights live outside, as a flat vector with free leading axes.
With no leading axis the lines of a model run in one vehicle, with leading axes they run a whole
stack of vehicles, and the gradient of the summed losses is each vehicle's own gradient.

A model's definition is `represent` and `head`; everything else follows from them. A kernel computes
the same in less time for one class. It is looked up by the exact class, so a subclass that changes
anything never uses its parent's kernel. The kernels are in `fedwatt.engine.kernels`.

Losses are element by element; the caller takes the mean over a batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import SettingError, unknown


class Loss(ABC):
    """A function of prediction and target, and its slope in the prediction."""

    def __init_subclass__(cls) -> None:
        """Derive the slope of a subclass that overrides the loss without its slope."""
        if "__call__" in vars(cls) and "slope" not in vars(cls):
            cls.slope = Loss.slope  # type: ignore[method-assign]

    @abstractmethod
    def __call__(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each element."""

    def slope(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the derivative with respect to `prediction`; by autograd unless a loss overrides
        it.
        """
        with torch.enable_grad():
            leaf = prediction.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self(leaf, target).sum(), leaf)
        return slope


class Squared(Loss):
    """e² with e = prediction - target; its batch mean is the MSE."""

    def __call__(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return e²."""
        return (prediction - target) ** 2

    def slope(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return 2e."""
        return 2 * (prediction - target)


class Huber(Loss):
    """e²/2 for |e| <= 1 and |e| - 1/2 beyond, e in units of the label's scale."""

    def __call__(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the Huber loss: quadratic inside, linear outside."""
        return torch.nn.functional.huber_loss(prediction, target, reduction="none", delta=1.0)

    def slope(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return e, at most 1 in size."""
        return (prediction - target).clamp(-1, 1)


squared = Squared()
huber = Huber()

LOSSES: dict[str, Loss] = {"mse": squared, "huber": huber}


def get_loss(name: str) -> Loss:
    """Return the loss by its name in a configuration."""
    if name not in LOSSES:
        raise SettingError(unknown("loss", name, LOSSES))
    return LOSSES[name]


Fill = Callable[[Tensor, Tensor], None]
"""(labels [P, batch], shares [P, batch]) → nothing; writes a gradient where it was told to."""


@dataclass(frozen=True)
class ModelStep:
    """A training step of a model in C, for one vehicle in float32."""

    source: str
    """Defines `model_step`, which engine/kernels/whole_round.c declares; that and trace.c have what
    it may use."""
    sizes: tuple[int, ...]
    """The model's own numbers."""
    work: int
    """Floats of memory that it needs."""
    reads: int
    """Floats of the series that it reads from where a window begins."""
    multiplies: bool = False
    """Whether it needs the matrix product of torch's own linear algebra library."""


class Kernel:
    """The optional fast paths of a model; each function returns None where it has none."""

    def represent(self, model: Any, parts: "Parts", windows: Tensor) -> Tensor | None:
        """Return `model.represent`, differentiable with respect to `parts`."""
        return None

    def fill(
        self, model: Any, weights: Tensor, windows: Tensor, gradient: Tensor, loss: Loss
    ) -> Fill | None:
        """Return the gradient for many steps on the same memory, for stacks with one leading axis.

        The function that is returned reads `weights` [P, D] and `windows` [P, batch, window,
        features] as they are when it is called and writes to `gradient` [P, D].
        """
        return None

    def along(
        self, model: Any, weights: Tensor, lines: Tensor, offsets: Tensor, windows: Tensor
    ) -> Tensor | None:
        """Return predictions [M, J, batch] at `weights` [D] + s·`lines` [M, D] for J offsets s."""
        return None

    def step(self, model: Any, batch: int, window: int) -> ModelStep | None:
        """Return a step in C on at most `batch` windows of `window` seconds."""
        return None

    def step_numbers(self, model: Any, batch: int) -> int | None:
        """Estimate how many numbers a vehicle's step works on: weights, gradient, activations."""
        return None


_kernels: dict[type["Model"], Kernel] = {}


def register(kind: type["Model"], kernel: Kernel) -> None:
    """Let `kernel` serve models that are exactly of class `kind`."""
    _kernels[kind] = kernel


def kernel_for(model: "Model") -> Kernel:
    """Return the kernel of a model's exact class, or one that declines everything."""
    return _kernels.get(type(model), Kernel())


@dataclass(frozen=True)
class Layout:
    """Tensors of a model in the order in which they lie in the flat vector."""

    shapes: dict[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        """D, the number of weights.

        >>> Layout({"weight": (8, 4), "bias": (4,)}).size
        36
        """
        return sum(prod(shape) for shape in self.shapes.values())

    def split(self, weights: Tensor) -> dict[str, Tensor]:
        """Return views of `weights` [..., D] as named tensors [..., *shape]."""
        lead = weights.shape[:-1]
        sizes = [prod(shape) for shape in self.shapes.values()]
        pieces = torch.split(weights, sizes, dim=-1)
        return {
            name: piece.view(*lead, *shape)
            for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }


Parts = Mapping[str, Tensor]

OUTPUT = ("output.weight", "output.bias")
"""Names of a linear output layer."""

POINTS = {"cpu": 8, "cuda": 128}
"""Points of lines that are evaluated side by side: as many as a core's cache holds, or a GPU."""


class Model(ABC):
    """A regressor from windows [..., batch, window, features] to energy [..., batch]."""

    unit_axis: ClassVar[int] = -1
    """Along which axis of a weight tensor its units lie; the others are what a unit reads."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Names and shapes of the tensors in the flat weight vector."""

    @property
    @abstractmethod
    def spectral_matrix(self) -> str:
        """Name of the matrix whose spectral ratio is of interest: the last *hidden* one.

        The output layer of a scalar regressor is a single row, for which ‖W‖₂ = ‖W‖_F always.
        """

    @abstractmethod
    def initial(self, rng: np.random.Generator) -> Tensor:
        """Draw initial weights [D], float64."""

    def input_fault(self, window: int, features: int) -> str:
        """Return the reason why it cannot read windows [window, features]; empty if it can, or does
        not know.
        """
        return ""

    @property
    def has_representation(self) -> bool:
        """Return whether `represent` is a hidden layer and not, for want of one, the prediction."""
        return True

    @property
    def head_names(self) -> tuple[str, ...] | None:
        """Names of the tensors that `head` uses; None: the model does not tell."""
        return None

    @abstractmethod
    def represent(self, parts: Parts, windows: Tensor) -> Tensor:
        """Return the input of the last layer, [..., batch, width]."""

    @abstractmethod
    def head(self, parts: Parts, representation: Tensor) -> Tensor:
        """Apply the last layer: [..., batch, width] to [..., batch]."""

    def representation(self, parts: Parts, windows: Tensor) -> Tensor:
        """Return `represent`, computed by a kernel where this class has one."""
        representation = kernel_for(self).represent(self, parts, windows)
        return self.represent(parts, windows) if representation is None else representation

    def prefixes(self) -> "tuple[Model, ...]":
        """Return, for each block from input to output, the model that ends after it; the last is
        this one.

        Each begins with the tensors of the one before it and ends with an output layer of its own,
        "output.weight" [width, 1] and "output.bias" [1]. Empty: the model does not tell its blocks.
        """
        return ()

    def predict(self, weights: Tensor, windows: Tensor) -> Tensor:
        """Return the predictions [..., batch] of `weights` [..., D], scaled as the labels are."""
        parts = self.layout.split(weights)
        return self.head(parts, self.representation(parts, windows))

    def gradient(
        self, weights: Tensor, windows: Tensor, labels: Tensor, share: Tensor, loss: Loss
    ) -> Tensor:
        """Return the gradient [..., D] of each vehicle's loss Σ_b share_b · loss_b.

        `labels` and `share` are [..., batch]. A batch mean has share 1/B on every window; a short
        batch has share 0 where it is padded.
        """
        gradient = torch.empty(weights.shape, dtype=weights.dtype, device=weights.device)
        size = weights.shape[-1]
        batch = labels.shape[-1]
        # One leading axis, as stacked products want it; all of these are views.
        fill = kernel_for(self).fill(
            self,
            weights.reshape(-1, size),
            windows.reshape(-1, *windows.shape[-3:]),
            gradient.view(-1, size),
            loss,
        )
        if fill is not None:
            fill(labels.reshape(-1, batch), share.reshape(-1, batch))
            return gradient

        def total(parts: Parts) -> Tensor:
            prediction = self.head(parts, self.representation(parts, windows))
            return (share * loss(prediction, labels)).sum()

        return self.gradient_of(total, weights)

    def fill(self, weights: Tensor, windows: Tensor, gradient: Tensor, loss: Loss) -> Fill:
        """Compute `gradient` for many steps in the same buffers (see `Kernel.fill`)."""
        filled = kernel_for(self).fill(self, weights, windows, gradient, loss)
        if filled is not None:
            return filled

        def fill(labels: Tensor, share: Tensor) -> None:
            gradient.copy_(self.gradient(weights, windows, labels, share, loss))

        return fill

    def step_numbers(self, batch: int) -> int:
        """Estimate how many numbers a vehicle's step works on.

        As many vehicles are trained side by side as keep theirs in a processor core's cache.
        """
        return kernel_for(self).step_numbers(self, batch) or 3 * self.layout.size

    def gradient_of(self, total: Callable[[Parts], Tensor], weights: Tensor) -> Tensor:
        """Return the gradient [..., D] of `total`, the sum of all vehicles' losses, at `weights`
        [..., D].
        """
        parts = {
            name: part.detach().requires_grad_()
            for name, part in self.layout.split(weights).items()
        }
        # Rules also ask for gradients where nothing else is to be recorded.
        with torch.enable_grad():
            value = total(parts)
        # A tensor that the loss does not use (an exit head not taken) has gradient 0.
        gradients = torch.autograd.grad(
            value, list(parts.values()), allow_unused=True, materialize_grads=True
        )
        lead = weights.dim() - 1
        return torch.cat([gradient.flatten(lead) for gradient in gradients], dim=-1)

    def along(
        self, weights: Tensor, directions: Tensor, offsets: Tensor, windows: Tensor
    ) -> Tensor:
        """Return the predictions [..., J, batch] of one vehicle at `weights` + s·direction for J
        offsets s.

        `weights` are [D], `directions` [..., D], `windows` [batch, window, features]. Some points
        at a time: all at once would hold J models and their activations in memory.
        """
        lines = directions.reshape(-1, len(weights))
        values = kernel_for(self).along(self, weights, lines, offsets, windows)
        if values is None:
            some = POINTS[weights.device.type]
            points = [
                self.predict(weights + s[:, None] * line, windows.expand(len(s), -1, -1, -1))
                for line in lines
                for s in torch.split(offsets, some)
            ]
            values = torch.cat(points)
        return values.view(*directions.shape[:-1], len(offsets), len(windows))


class LinearHead(Model):
    """A model whose last layer is linear: "output.weight" [width, 1] and "output.bias" [1]."""

    @property
    def head_names(self) -> tuple[str, ...]:
        """The two tensors of the output layer."""
        return OUTPUT

    def head(self, parts: Parts, representation: Tensor) -> Tensor:
        """Apply the linear output layer, [..., batch]."""
        return affine(parts, "output", representation).squeeze(-1)


def affine(parts: Parts, layer: str, x: Tensor) -> Tensor:
    """Return x[..., batch, in] @ W[..., in, out] + b[..., 1, out]."""
    return x @ parts[f"{layer}.weight"] + parts[f"{layer}.bias"].unsqueeze(-2)


def uniform(rng: np.random.Generator, layout: Layout, bounds: Mapping[str, float]) -> Tensor:
    """Draw weights [D] from U(-bound, bound), one bound for each tensor of the layout."""
    drawn = [
        rng.uniform(-bounds[name], bounds[name], size=shape).ravel()
        for name, shape in layout.shapes.items()
    ]
    return torch.from_numpy(np.concatenate(drawn))
