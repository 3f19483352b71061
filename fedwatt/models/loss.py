"""Regression losses, element by element; the mean over a batch is taken by the caller."""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from fedwatt.errors import SettingError, unknown

Loss = Callable[[Tensor, Tensor], Tensor]


def squared(prediction: Tensor, target: Tensor) -> Tensor:
    """(prediction - target)²; its batch mean is the MSE."""
    return (prediction - target) ** 2


def huber(prediction: Tensor, target: Tensor) -> Tensor:
    """e²/2 for |e| <= 1 and |e| - 1/2 beyond, e in units of the label's scale."""
    return torch.nn.functional.huber_loss(prediction, target, reduction="none", delta=1.0)


LOSSES: Final[dict[str, Loss]] = {"mse": squared, "huber": huber}


def get_loss(name: str) -> Loss:
    """Loss by its name in a configuration."""
    if name not in LOSSES:
        raise SettingError(unknown("loss", name, LOSSES))
    return LOSSES[name]
