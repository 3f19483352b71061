"""Faster code for models, registered for an exact class.

A model's definition is `represent` and `head`; that is all a model must have, and everything else
follows from them. A kernel does the same in less time for one class of models. It is looked up by
the exact class, so a subclass that changes anything is never served by its parent's kernel. The
kernels themselves are in `fedwatt.engine.kernels`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedwatt.models.loss import Loss

if TYPE_CHECKING:
    from fedwatt.models.model import Model, Parts

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
