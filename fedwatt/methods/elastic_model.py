"""FedEL's model with early exits, the time its tensors cost, and the choice of tensors to train.

Zhang et al., NeurIPS 2025. The blocks of an MLP are its hidden layers; a GRU or an LSTM is one
block. The exit after the last block is the model's own output layer. An exit after an earlier
block is one linear layer, so a network that leaves there is a shorter MLP. Exits lie behind the
model's own tensors in the flat vector: the first weights of an elastic model are the model, and a
vehicle that only predicts never sees the exits.

Time is counted in floating-point operations for one window: a linear layer [in, out] takes 2·in·out
for its forward pass, as many for the gradient of its weight and as many to pass the gradient on;
its bias takes `out` for its own gradient. The cell of a recurrent model does that every second.
Only ratios matter: a budget is a multiple of the whole model's time.

Training the tensors A of a window (after ElasticTrainer, Huang et al., MobiSys 2023) costs, besides
the forward pass,

    Σ_{k in A} apply_k + Σ_{k deeper than the shallowest of A} through_k

where `apply` is the time of a tensor's own gradient and `through` that of passing the gradient on
to earlier tensors. Tensors are ordered from input to output, so deeper means later.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import NamedTuple

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
                f"FedEL needs a model's blocks, and {type(self.base).__name__} declares none. Use "
                " an MLP, a GRU or an LSTM, or another method."
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
        """Return the names of weight and bias of the exit after `block`."""
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
        """The base model's matrix."""
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
        """Return the representation of the base model."""
        return self.base.representation(parts, windows)

    def head(self, parts: Parts, representation: Tensor) -> Tensor:
        """Return the predictions of the base model."""
        return self.base.head(parts, representation)

    def gradient(
        self, weights: Tensor, windows: Tensor, labels: Tensor, share: Tensor, loss: Loss
    ) -> Tensor:
        """Return the base model's gradient, and 0 for the exits, which its loss does not use."""
        gradient = torch.zeros_like(weights)
        size = self.base.layout.size
        model_weights = weights[..., :size].contiguous()
        gradient[..., :size] = self.base.gradient(model_weights, windows, labels, share, loss)
        return gradient

    def along(
        self, weights: Tensor, directions: Tensor, offsets: Tensor, windows: Tensor
    ) -> Tensor:
        """Return the predictions of the base model on each line; exits are not in them."""
        size = self.base.layout.size
        return self.base.along(weights[:size], directions[..., :size], offsets, windows)

    def path(self, block: int) -> list[str]:
        """Return the names of all tensors between the input and the exit after `block`."""
        return [*(name for names in self.blocks[: block + 1] for name in names), *self.exit(block)]

    def leave(self, block: int, parts: Parts, windows: Tensor) -> Tensor:
        """Return predictions [..., batch] at the exit after `block`."""
        shorter = self.base.prefixes()[block]
        weight, bias = self.exit(block)
        last = {OUTPUT[0]: parts[weight], OUTPUT[1]: parts[bias]}
        return shorter.head(last, shorter.representation(parts, windows))


@dataclass(frozen=True)
class TensorWork:
    """Floating-point operations for one tensor and one window."""

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
    """Count the operations of a step with the exit after `front` that trains it and `chosen`."""
    work, chosen = tensor_work(model, seconds), set(chosen)
    path = model.path(front)
    total = sum(work[name].forward for name in path)
    total += sum(work[name].apply for name in path if name in chosen or name in model.exit(front))
    shallowest = next((i for i, name in enumerate(path) if name in chosen), len(path))
    return total + sum(work[name].through for name in path[shallowest + 1 :])


def whole_work(model: ElasticModel, seconds: int) -> int:
    """Count the operations of a step of the whole model.

    >>> from fedwatt.models import MLP
    >>> whole_work(ElasticModel(MLP(2, 3, (5,))), 2)  # 60 + 10 forward, 60 + 5 + 10 + 1, 10 back
    156
    """
    front = len(model.blocks) - 1
    return training_work(model, seconds, front, model.path(front))


class _Selection(NamedTuple):
    """A candidate set of tensors to train; of two sets the larger tuple is better.

    Exact fractions: rounding may not decide between two sets of equal worth.
    """

    importance: Fraction
    size: int
    tensors: int
    """Bit k is tensor k, so that of two sets of equal worth and size the deeper is larger."""


def select(
    importance: Sequence[float], apply: Sequence[float], through: Sequence[float], budget: float
) -> list[bool]:
    """Return the tensors with the largest total importance that fit into the budget.

    `through` has one more entry than there are tensors: that of the exit behind them. Of two sets
    of equal importance the larger is taken, then the deeper. For each shallowest tensor the cost
    of passing the gradient is fixed and the rest is a knapsack, solved by keeping the sets that
    no cheaper set outdoes.

    >>> select([3, 1, 2], [4, 1, 4], [4, 0, 4, 1], budget=10)  # 4 + 1, and 0 + 4 + 1 behind
    [True, True, False]
    >>> select([3, 1, 2], [4, 1, 4], [4, 0, 4, 1], budget=9)
    [True, False, False]
    """
    best = _Selection(Fraction(0), 0, 0)
    for shallowest in range(len(importance)):
        cost = sum(through[shallowest + 1 :]) + apply[shallowest]
        if cost > budget:
            continue
        sets = [(cost, _Selection(Fraction(importance[shallowest]), 1, 1 << shallowest))]
        for k in range(shallowest + 1, len(importance)):
            worth = Fraction(importance[k])
            affordable = [entry for entry in sets if entry[0] + apply[k] <= budget]
            sets += [
                (
                    cost + apply[k],
                    _Selection(chosen.importance + worth, chosen.size + 1, chosen.tensors | 1 << k),
                )
                for cost, chosen in affordable
            ]
            sets = _undominated(sets)
        best = max(best, sets[-1][1])
    return [bool(best.tensors >> k & 1) for k in range(len(importance))]


def _undominated(sets: list[tuple[float, _Selection]]) -> list[tuple[float, _Selection]]:
    """Return the sets that no cheaper or equally cheap set beats, by rising cost and worth."""
    sets.sort(key=lambda entry: entry[1], reverse=True)
    sets.sort(key=lambda entry: entry[0])
    undominated: list[tuple[float, _Selection]] = []
    for entry in sets:
        if not undominated or entry[1] > undominated[-1][1]:
            undominated.append(entry)
    return undominated


def front_after(block: int, times: Sequence[float], budget: float) -> int:
    """Return the first f > `block` with times[block+1] + ... + times[f] >= budget, else the last.

    >>> front_after(-1, [3, 2, 4], budget=5), front_after(1, [3, 2, 4], budget=5)
    (1, 2)
    """
    total = 0.0
    for front in range(block + 1, len(times)):
        total += times[front]
        if total >= budget:
            return front
    return len(times) - 1


def next_window(
    window: tuple[int, int] | None, used: Sequence[bool], times: Sequence[float], budget: float
) -> tuple[int, int]:
    """Return the window (first, front) of a vehicle's next participation; None: it has had none
    yet.

    The front moves on by about a budget's worth of blocks; leading blocks of which nothing was
    `used` [blocks] last time are left behind. Past the last block the window starts anew.

    >>> next_window(None, [], [3, 2, 4], budget=3)
    (0, 0)
    >>> next_window((0, 1), [False, True, False], [3, 2, 4], budget=3)
    (1, 2)
    >>> next_window((1, 2), [False, True, True], [3, 2, 4], budget=3)
    (0, 0)
    """
    if window is None or window[1] == len(times) - 1:
        return 0, front_after(-1, times, budget)
    first, front = window
    used_blocks = (block for block in range(first, front + 1) if used[block])
    return next(used_blocks, front), front_after(front, times, budget)
