"""A convolution over the seconds of a window, its mean and maximum, and one linear layer.

fedwatt run --set model.name=./examples/conv.py:Conv
"""

import torch
from torch import Tensor, nn


class Conv(nn.Module):
    """Windows [batch, window, features] to energies [batch]."""

    def __init__(self, features: int, hidden: tuple[int, ...] = (16,)) -> None:
        super().__init__()
        (width,) = hidden
        self.first = nn.Conv1d(features, width, kernel_size=5, padding=2)
        self.second = nn.Conv1d(width, width, kernel_size=5, padding=2, stride=2)
        self.output = nn.Linear(2 * width, 1)

    def forward(self, windows: Tensor) -> Tensor:
        """Return the energies; Conv1d takes seconds as the last axis."""
        x = torch.relu(self.first(windows.transpose(1, 2)))
        x = torch.relu(self.second(x))
        return self.output(torch.cat([x.mean(dim=-1), x.amax(dim=-1)], dim=-1)).squeeze(-1)
