"""Regression losses, element by element; the mean over a batch is taken by the caller."""

from abc import ABC, abstractmethod
from typing import Final

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


squared: Final = Squared()
huber: Final = Huber()

LOSSES: Final[dict[str, Loss]] = {"mse": squared, "huber": huber}


def get_loss(name: str) -> Loss:
    """Return the loss by its name in a configuration."""
    if name not in LOSSES:
        raise SettingError(unknown("loss", name, LOSSES))
    return LOSSES[name]
