"""What the rest of the library asks of a model.

A model is a frozen description; its weights live outside, as a flat vector with free leading axes.
With no leading axis the lines of a model run in one vehicle, with leading axes they run a whole
stack of vehicles, and the gradient of the summed losses is each vehicle's own gradient.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.models.layout import Layout
from fedwatt.models.loss import Loss

Parts = Mapping[str, Tensor]

Fill = Callable[[Tensor, Tensor], None]
"""(labels [P, batch], shares [P, batch]) → nothing; writes a gradient where it was told to."""


@dataclass(frozen=True)
class ModelInC:
    """How a model takes a step in C, for one vehicle in float32."""

    source: str
    """Defines `model_step`, which federation/compiled.c declares; that and fused.c have what it may
    use."""
    sizes: tuple[int, ...]
    """The model's own numbers."""
    work: int
    """Floats of memory that it needs."""
    reads: int
    """Floats of the series that it reads from where a window begins."""
    multiplies: bool = False
    """Whether it needs the matrix product of torch's own linear algebra library."""


GRADIENT_HOOKS: Final = ("gradient", "prepared", "represent", "head", "layout")
"""What `Model.in_c` stands for."""


class Model(ABC):
    """A regressor from windows [..., batch, window, features] to energy [..., batch]."""

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
        """Fresh weights [D], float64."""

    def input_fault(self, window: int, features: int) -> str:
        """Why it cannot read windows [window, features]; empty if it can, or does not know."""
        return ""

    @property
    def has_representation(self) -> bool:
        """Whether `represent` is a hidden layer and not, for want of one, the prediction."""
        return True

    @abstractmethod
    def represent(self, parts: Parts, windows: Tensor) -> Tensor:
        """Input of the last layer, [..., batch, width]."""

    @abstractmethod
    def head(self, parts: Parts, representation: Tensor) -> Tensor:
        """Last layer: [..., batch, width] to [..., batch]."""

    def prefixes(self) -> "tuple[Model, ...]":
        """For each block from input to output, the model that ends after it; the last is this one.

        Each begins with the tensors of the one before it and ends with an output layer of its own,
        "output.weight" [width, 1] and "output.bias" [1]. Empty: the model does not tell its blocks.
        """
        return ()

    def predict(self, weights: Tensor, windows: Tensor) -> Tensor:
        """Predictions [..., batch] of `weights` [..., D], scaled as the labels are."""
        parts = self.layout.split(weights)
        return self.head(parts, self.represent(parts, windows))

    def gradient(
        self, weights: Tensor, windows: Tensor, labels: Tensor, share: Tensor, loss: Loss
    ) -> Tensor:
        """Gradient [..., D] of each vehicle's loss Σ_b share_b · loss_b.

        `labels` and `share` are [..., batch]. A batch mean has share 1/B on every window; a short
        batch has share 0 where it is padded.
        """

        def total(parts: Parts) -> Tensor:
            prediction = self.head(parts, self.represent(parts, windows))
            return (share * loss(prediction, labels)).sum()

        return self.gradient_of(total, weights)

    def prepared(self, weights: Tensor, windows: Tensor, gradient: Tensor, loss: Loss) -> Fill:
        """`gradient` for many steps on the same memory, for stacks with one leading axis.

        The function that is returned reads `weights` [P, D] and `windows` [P, batch, window,
        features] as they are when it is called and writes to `gradient` [P, D].
        """

        def fill(labels: Tensor, share: Tensor) -> None:
            gradient.copy_(self.gradient(weights, windows, labels, share, loss))

        return fill

    def in_c(self, batch: int, window: int) -> ModelInC | None:
        """`gradient` in C as well, for `batch` windows of `window` seconds; None: there is none.

        What stands here is used only if nothing of what it stands for (`GRADIENT_HOOKS`) is
        overridden further down.
        """
        return None

    def step_numbers(self, batch: int) -> int:
        """About how many numbers a vehicle's step works on: weights, gradient, activations.

        As many vehicles are trained side by side as keep theirs in a processor core's cache.
        """
        return 3 * self.layout.size

    def gradient_of(self, total: Callable[[Parts], Tensor], weights: Tensor) -> Tensor:
        """Gradient [..., D] of `total`, the sum of all vehicles' losses, at `weights` [..., D]."""
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
        """Predictions [..., J, batch] of one vehicle at `weights` + s·direction for J offsets s.

        `weights` are [D], `directions` [..., D], `windows` [batch, window, features]. Eight points
        at a time: all at once would hold J models and their activations in memory.
        """
        points = [
            self.predict(weights + some[:, None] * direction, windows.expand(len(some), -1, -1, -1))
            for direction in directions.reshape(-1, len(weights))
            for some in torch.split(offsets, 8)
        ]
        return torch.cat(points).view(*directions.shape[:-1], len(offsets), -1)


def overridden(speaker: object, said: str, *hooks: str) -> bool:
    """Whether a hook that `said` stands for comes from further down than `said` itself does."""
    order = type(speaker).__mro__

    def place(name: str) -> int:
        return next(i for i, kind in enumerate(order) if name in vars(kind))

    return place(said) > min(place(hook) for hook in hooks)


def speaks_c(speaker: object, *hooks: str) -> bool:
    """Whether a rule's or model's `in_c` is that of its hooks, not of a class it departs from."""
    return not overridden(speaker, "in_c", *hooks)


def filled(
    model: Model, weights: Tensor, windows: Tensor, labels: Tensor, share: Tensor, loss: Loss
) -> Tensor:
    """`Model.gradient` by way of `Model.prepared`, with any leading axes."""
    gradient = torch.empty(weights.shape, dtype=weights.dtype, device=weights.device)
    size, batch = weights.shape[-1], labels.shape[-1]
    # One leading axis, as stacked products want it; all of these are views.
    fill = model.prepared(
        weights.reshape(-1, size),
        windows.reshape(-1, *windows.shape[-3:]),
        gradient.view(-1, size),
        loss,
    )
    fill(labels.reshape(-1, batch), share.reshape(-1, batch))
    return gradient


def uniform(rng: np.random.Generator, layout: Layout, bounds: Mapping[str, float]) -> Tensor:
    """Weights [D] drawn from U(-bound, bound), one bound for each tensor of the layout."""
    drawn = [
        rng.uniform(-bounds[name], bounds[name], size=shape).ravel()
        for name, shape in layout.shapes.items()
    ]
    return torch.from_numpy(np.concatenate(drawn))
