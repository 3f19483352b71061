"""The library's networks as torch.nn has them, and their weights in either order.

What the benchmarks train in plain loops, and what the tests hold the library's own networks
against: nothing here uses the library's forward or backward passes.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedwatt.errors import SettingError
from fedwatt.models import GRU, LSTM, MLP, Model


class Recurrent(nn.Module):
    """torch.nn.GRU or LSTM with a linear head on its last output."""

    def __init__(self, model: GRU | LSTM) -> None:
        super().__init__()
        kind = nn.GRU if isinstance(model, GRU) else nn.LSTM
        self.layer = kind(model.features, model.hidden, batch_first=True)
        self.out = nn.Linear(model.hidden, 1)

    def forward(self, windows: Tensor) -> Tensor:
        """[batch, window, features] to [batch]."""
        out: Tensor = self.out(self.layer(windows)[0][:, -1])
        return out.squeeze(-1)


def network(model: Model) -> nn.Module:
    """Return the network of `model` with the initial weights of torch."""
    if isinstance(model, GRU | LSTM):
        return Recurrent(model)
    if not isinstance(model, MLP):
        raise SettingError(f"torch.nn has MLP, GRU and LSTM here, not {type(model).__name__}.")
    widths = (model.window * model.features, *model.hidden)
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 1), nn.Flatten(0))


def torch_module(model: Model, weights: Tensor) -> nn.Module:
    """Return the network of `model` with its weights [D]."""
    module = network(model).to(weights.dtype)
    load(module, model, weights)
    return module


def load(module: nn.Module, model: Model, weights: Tensor) -> None:
    """Put `weights` [D] into the parameters of `module`."""
    parts = model.layout.split(weights)
    with torch.no_grad():
        for name, parameter in zip(_torch_order(model), module.parameters(), strict=True):
            parameter.copy_(parts[name].mT if parameter.dim() == 2 else parts[name])


def flat_weights(model: Model, tensors: Sequence[Tensor]) -> Tensor:
    """Tensors in torch.nn's order and orientation as the model's flat vector [D]."""
    named = dict(zip(_torch_order(model), tensors, strict=True))
    parts = [
        named[name].mT if named[name].dim() == 2 else named[name] for name in model.layout.shapes
    ]
    return torch.cat([part.detach().flatten() for part in parts])


def _torch_order(model: Model) -> list[str]:
    """Return the model's names of its weights, in the order of torch.nn's parameters."""
    if isinstance(model, MLP):
        return list(model.layout.shapes)
    first = ["input.weight", "recurrent.weight", "input.bias", "recurrent.bias"]
    return [*first, "output.weight", "output.bias"]
