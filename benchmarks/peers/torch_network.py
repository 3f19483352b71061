"""The recipe's network in PyTorch."""

from itertools import pairwise

import torch
from task import WIDTHS
from torch import Tensor, nn


class Network(nn.Module):
    """MLP 480-64-32-1."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(WIDTHS):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, windows: Tensor) -> Tensor:
        """Return predictions [batch] of windows [batch, 480]."""
        return self.layers(windows)[:, 0]


def version() -> str:
    """Return the version of torch."""
    return f"torch {torch.__version__}"
