"""The default predictor: a multilayer perceptron over the flattened window.

Two hidden layers with ReLU, as in the paper's section on models; 64 and 32 units by default.

A module of layers `nn.Linear` with ReLU between them, on the flattened window, is an `MLP` whatever
its author called it, and `MLP` has kernels. `recognised` follows a module by torch.fx; if all it
does is flatten, Linear and ReLU in turn, the same numbers in the MLP's order give the same
energies, which is checked on random windows. The module keeps its own names and shapes elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from fedwatt.errors import check
from fedwatt.models.model import Layout, LinearHead, Model, Parts, affine, uniform


@dataclass(frozen=True)
class MLP(LinearHead):
    """window · features → hidden[0] → ... → 1, ReLU between."""

    window: int
    features: int
    hidden: tuple[int, ...] = (64, 32)

    def __post_init__(self) -> None:
        check(self, "window", self.window >= 1, "at least 1")
        check(self, "features", self.features >= 1, "at least 1")
        positive = len(self.hidden) >= 1 and all(width >= 1 for width in self.hidden)
        check(self, "hidden", positive, "one or more widths of at least 1, such as (64, 32)")

    @cached_property
    def layout(self) -> Layout:
        """hidden1.weight [in, 64], hidden1.bias [64], ..., output.weight, output.bias."""
        widths = (self.window * self.features, *self.hidden, 1)
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (fan_in, fan_out) in zip(self.layers, pairwise(widths), strict=True):
            shapes[f"{name}.weight"] = (fan_in, fan_out)
            shapes[f"{name}.bias"] = (fan_out,)
        return Layout(shapes)

    def input_fault(self, window: int, features: int) -> str:
        """Return the first matrix has a row for every number of a window."""
        if (self.window, self.features) == (window, features):
            return ""
        return f"it was made for windows of {self.window} samples by {self.features} features"

    def prefixes(self) -> tuple[Model, ...]:
        """Return the first hidden layer, the first two, and so on, each with an output layer."""
        return tuple(replace(self, hidden=self.hidden[: n + 1]) for n in range(len(self.hidden)))

    @property
    def layers(self) -> list[str]:
        """Names of the layers, from input to output."""
        return [*(f"hidden{i + 1}" for i in range(len(self.hidden))), "output"]

    @property
    def spectral_matrix(self) -> str:
        """The last hidden matrix."""
        return f"hidden{len(self.hidden)}.weight"

    def initial(self, rng: np.random.Generator) -> Tensor:
        """Draw U(-1/√fan_in, 1/√fan_in) for weights and biases, PyTorch's default for Linear."""
        bounds = {}
        for name in self.layout.shapes:
            layer = name.partition(".")[0]
            bounds[name] = self.layout.shapes[f"{layer}.weight"][0] ** -0.5
        return uniform(rng, self.layout, bounds)

    def represent(self, parts: Parts, windows: Tensor) -> Tensor:
        """Return the last hidden activation, after its ReLU."""
        x = windows.flatten(-2)
        for i in range(len(self.hidden)):
            x = torch.relu(affine(parts, f"hidden{i + 1}", x))
        return x


RESHAPES = ("flatten", "reshape", "view", "squeeze", "size", "getattr", "getitem", "len")
RELUS = ("relu", "relu_")
CLOSE = 1e-9
"""Relative difference of energies in float64 that two orders of adding may have."""


@dataclass(frozen=True)
class ReluStack:
    """An MLP, and how its weights lie in a module."""

    model: MLP
    module_layout: Layout
    """The module's."""
    linears: tuple[str, ...]
    """Names of the module's Linear layers, from input to output."""

    def to_mlp(self, weights: Tensor) -> Tensor:
        """Return the module's weights [..., D] in the MLP's order: torch's matrices are [out,
        in].
        """
        parts = self.module_layout.split(weights)
        pieces = []
        for name in self.linears:
            pieces += [parts[f"{name}.weight"].mT.flatten(-2), parts[f"{name}.bias"]]
        return torch.cat(pieces, dim=-1)

    def from_mlp(self, weights: Tensor) -> Tensor:
        """Return the MLP's weights [..., D] in the module's order."""
        parts = self.model.layout.split(weights)
        pieces = {}
        for layer, name in zip(self.model.layers, self.linears, strict=True):
            pieces[f"{name}.weight"] = parts[f"{layer}.weight"].mT.flatten(-2)
            pieces[f"{name}.bias"] = parts[f"{layer}.bias"]
        return torch.cat([pieces[name] for name in self.module_layout.shapes], dim=-1)


def recognised(module: nn.Module, layout: Layout, window: int, features: int) -> ReluStack | None:
    """Return the MLP that a module is for windows [window, features]; None if it is something
    else.
    """
    linears = _linears(module)
    if linears is None:
        return None
    needed = {f"{name}.{part}" for name in linears for part in ("weight", "bias")}
    if needed != layout.shapes.keys():
        return None
    shapes = [layout.shapes[f"{name}.weight"] for name in linears]
    widths = [shapes[0][1], *(outputs for outputs, _ in shapes)]
    if len(widths) < 3 or widths[0] != window * features or widths[-1] != 1:
        return None
    stack = ReluStack(MLP(window, features, tuple(widths[1:-1])), layout, tuple(linears))
    return stack if _agrees(stack, module) else None


def _linears(module: nn.Module) -> list[str] | None:
    """Return the names of a chain of Linear and ReLU layers; None for any other module."""
    try:
        graph = fx.symbolic_trace(module).graph
    except Exception:  # whatever the code of somebody else raises when it is not given tensors
        return None
    names: list[str] = []
    expected: type[nn.Module] = nn.Linear
    for node in graph.nodes:
        kind = _kind(node, module)
        if kind is nn.Linear and expected is nn.Linear:
            names.append(str(node.target))
            expected = nn.ReLU
        elif kind is nn.ReLU and expected is nn.ReLU:
            expected = nn.Linear
        elif kind is not None:
            return None
    return names if names and len(set(names)) == len(names) and expected is nn.ReLU else None


def _kind(node: fx.Node, module: nn.Module) -> Any:
    """Return nn.Linear, nn.ReLU, None for layers that change nothing, or the class of any other
    layer.
    """
    if node.op in ("placeholder", "output"):
        return None
    if node.op == "call_module":
        submodule = module.get_submodule(str(node.target))
        if isinstance(submodule, nn.Flatten | nn.Unflatten | nn.Identity):
            return None
        return type(submodule)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name in RELUS:
        return nn.ReLU
    return None if name in RESHAPES else name


def _agrees(stack: ReluStack, module: nn.Module) -> bool:
    """Return whether both give the same energies for windows that nobody chose, and weights
    likewise.
    """
    drawn = torch.Generator().manual_seed(0)
    shape = (5, stack.model.window, stack.model.features)
    weights = torch.randn(stack.module_layout.size, generator=drawn, dtype=torch.float64) / 8
    windows = torch.randn(shape, generator=drawn, dtype=torch.float64)
    try:
        outputs = torch.func.functional_call(module, stack.module_layout.split(weights), (windows,))
    except RuntimeError:
        return False
    same = stack.model.predict(stack.to_mlp(weights), windows)
    close = outputs.numel() == len(same) and torch.allclose(outputs.flatten(), same, CLOSE, CLOSE)
    return close and torch.equal(stack.from_mlp(stack.to_mlp(weights)), weights)


def permuted(rows: Sequence[dict[str, Tensor]], stack: ReluStack) -> tuple[dict[str, Tensor], ...]:
    """Return rules' plans with every [.., D] entry in the MLP's order of weights."""
    size = stack.module_layout.size
    return tuple(
        {n: stack.to_mlp(v) if v.dim() > 1 and v.shape[-1] == size else v for n, v in plan.items()}
        for plan in rows
    )
