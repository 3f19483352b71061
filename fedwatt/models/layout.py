"""Names and shapes of the tensors inside one flat weight vector.

Every method works on a model's weights as one vector w of shape [..., D]; only the model itself
needs to see matrices. `Layout.split` gives those matrices as views, so nothing is copied.
"""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor


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
