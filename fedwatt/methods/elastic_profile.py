"""Time that each tensor of a model costs a vehicle's computer: the profile behind FedEL.

The proxy of floating-point operations for one window: a linear layer [in, out] takes 2·in·out for
its forward pass, as many for the gradient of its weight and as many to pass the gradient on; its
bias takes `out` for its own gradient. The cell of a recurrent model does that every second.
Only ratios matter: a budget is a multiple of the whole model's time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from fedwatt.methods.elastic_model import ElasticModel


@dataclass(frozen=True)
class TensorWork:
    """Operations for one tensor and one window."""

    forward: int
    apply: int  # of the tensor's own gradient
    through: int  # of passing the gradient on to what lies before it


def tensor_work(model: ElasticModel, seconds: int) -> dict[str, TensorWork]:
    """Return the work of each tensor for windows of `seconds`.

    >>> from fedwatt.models import MLP
    >>> work = tensor_work(ElasticModel(MLP(2, 3, (5, 4))), 2)
    >>> work["hidden1.weight"]
    TensorWork(forward=60, apply=60, through=60)
    >>> work["exit1.bias"]
    TensorWork(forward=0, apply=1, through=0)
    """
    work = {}
    for name, shape in model.layout.shapes.items():
        repeats = seconds if name.startswith(("input.", "recurrent.")) else 1
        if len(shape) == 2:
            products = 2 * repeats * prod(shape)
            work[name] = TensorWork(products, products, products)
        else:
            work[name] = TensorWork(0, repeats * prod(shape), 0)
    return work


def training_work(model: ElasticModel, seconds: int, front: int, chosen: Iterable[str]) -> int:
    """Operations of a step that leaves after block `front` and trains its exit and `chosen`."""
    work, chosen = tensor_work(model, seconds), set(chosen)
    path = model.path(front)
    total = sum(work[name].forward for name in path)
    total += sum(work[name].apply for name in path if name in chosen or name in model.exit(front))
    shallowest = next((i for i, name in enumerate(path) if name in chosen), len(path))
    return total + sum(work[name].through for name in path[shallowest + 1 :])


def whole_work(model: ElasticModel, seconds: int) -> int:
    """Operations of an ordinary step: all blocks, all tensors.

    >>> from fedwatt.models import MLP
    >>> whole_work(ElasticModel(MLP(2, 3, (5,))), 2)  # 60 + 10 forward, 60 + 5 + 10 + 1, 10 back
    156
    """
    front = len(model.blocks) - 1
    return training_work(model, seconds, front, model.path(front))
