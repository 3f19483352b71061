"""A model in blocks, with an early exit after every block but the last: what FedEL trains.

Zhang et al., NeurIPS 2025 (FedEL). The blocks of an MLP are its hidden layers; a GRU or an LSTM is
one block. The exit after the last block is the model's own output layer. An exit after an earlier
block is one linear layer of its own, so a network that leaves there is simply a shorter MLP.

The exits lie behind the model's own tensors in the flat vector: the first weights of an elastic
model are the model, and a vehicle that only predicts never sees the rest.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.models import Layout, Loss, Model
from fedwatt.models.model import OUTPUT, Parts, uniform


@dataclass(frozen=True)
class ElasticModel(Model):
    """`base` with its early exits."""

    base: Model

    def __post_init__(self) -> None:
        if not self.base.prefixes():
            raise SettingError(
                f"FedEL must know a model's blocks, and {type(self.base).__name__} does not tell. "
                "Use an MLP, a GRU or an LSTM, or another method."
            )

    @cached_property
    def blocks(self) -> tuple[tuple[str, ...], ...]:
        """Names of the tensors of each block, from input to output; exits belong to none.

        >>> from fedwatt.models import MLP
        >>> ElasticModel(MLP(2, 3, (5, 4))).blocks
        (('hidden1.weight', 'hidden1.bias'), ('hidden2.weight', 'hidden2.bias'))
        """
        ends = [[n for n in p.layout.shapes if n not in OUTPUT] for p in self.base.prefixes()]
        return tuple(tuple(end[len(begin) :]) for begin, end in pairwise([[], *ends]))

    def exit(self, block: int) -> tuple[str, str]:
        """Names of the weight and bias with which the network leaves after `block`."""
        if block == len(self.blocks) - 1:
            return OUTPUT
        return f"exit{block + 1}.weight", f"exit{block + 1}.bias"

    @cached_property
    def layout(self) -> Layout:
        """The model's own tensors, then exit1.weight, exit1.bias, ..."""
        shapes = dict(self.base.layout.shapes)
        for block, names in enumerate(self.blocks[:-1]):
            weight, bias = self.exit(block)
            shapes[weight] = (self.base.layout.shapes[names[0]][1], 1)
            shapes[bias] = (1,)
        return Layout(shapes)

    @property
    def spectral_matrix(self) -> str:
        """The model's own."""
        return self.base.spectral_matrix

    def initial(self, rng: np.random.Generator) -> Tensor:
        """Return the model's own initial weights, then U(-1/√width, 1/√width) for the exits."""
        base = self.base.initial(rng)
        names = [name for block in range(len(self.blocks) - 1) for name in self.exit(block)]
        if not names:
            return base
        exits = Layout({name: self.layout.shapes[name] for name in names})
        widths = {name: exits.shapes[name.replace("bias", "weight")][0] for name in names}
        return torch.cat([base, uniform(rng, exits, {n: w**-0.5 for n, w in widths.items()})])

    def represent(self, parts: Parts, windows: Tensor) -> Tensor:
        """Return the model's own."""
        return self.base.representation(parts, windows)

    def head(self, parts: Parts, representation: Tensor) -> Tensor:
        """Return the model's own."""
        return self.base.head(parts, representation)

    def gradient(
        self, weights: Tensor, windows: Tensor, labels: Tensor, share: Tensor, loss: Loss
    ) -> Tensor:
        """Return the model's own, and 0 for the exits, which its loss does not use."""
        gradient = torch.zeros_like(weights)
        size = self.base.layout.size
        model_weights = weights[..., :size].contiguous()
        gradient[..., :size] = self.base.gradient(model_weights, windows, labels, share, loss)
        return gradient

    def along(
        self, weights: Tensor, directions: Tensor, offsets: Tensor, windows: Tensor
    ) -> Tensor:
        """Return the model's own."""
        size = self.base.layout.size
        return self.base.along(weights[:size], directions[..., :size], offsets, windows)

    def path(self, block: int) -> list[str]:
        """Names of all tensors between the input and the exit after `block`."""
        return [*(name for names in self.blocks[: block + 1] for name in names), *self.exit(block)]

    def leave(self, block: int, parts: Parts, windows: Tensor) -> Tensor:
        """Predictions [..., batch] of a network that ends with the exit after `block`."""
        shorter = self.base.prefixes()[block]
        weight, bias = self.exit(block)
        last = {OUTPUT[0]: parts[weight], OUTPUT[1]: parts[bias]}
        return shorter.head(last, shorter.representation(parts, windows))
