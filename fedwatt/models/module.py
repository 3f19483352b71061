"""Models from any `torch.nn.Module`, stacked by torch.func.vmap.

A little slower than the models written with leading axes, and right for every module whose
forward maps windows [batch, window, features] to energies [batch] without buffers or dropout.
"""

import threading
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedwatt.errors import SettingError
from fedwatt.models.model import Layout, Model, Parts

_of_this_thread = threading.local()


@dataclass(frozen=True, eq=False)
class ModuleModel(Model):
    """Wraps `module`; every vehicle starts from the weights the module has now.

    With `make`, which builds such a module, each seed starts from weights of its own. `matrix`
    names the parameter whose spectral ratio is of interest; by default the last one
    with at least two rows and two columns.
    """

    unit_axis: ClassVar[int] = 0  # as torch's own layers have it

    module: nn.Module
    matrix: str | None = None
    make: Callable[[], nn.Module] | None = None

    def __post_init__(self) -> None:
        name = type(self.module).__name__
        for layer, part in self.module.named_modules():
            if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
                raise SettingError(
                    f"{name} has dropout (layer '{layer}', p = {part.p:g}), and a vehicle's steps "
                    "must come out the same wherever they are taken. Leave it out; fewer rounds, "
                    "fewer units or personalisation.steps hold a network back as well."
                )
        buffer = next((name for name, _ in self.module.named_buffers()), None)
        if buffer is not None:
            raise SettingError(
                f"{name} has a buffer, '{buffer}' (batch norm?), which averaging does not carry. "
                "Use a module with parameters only: nn.LayerNorm or nn.GroupNorm in place of batch "
                "norm."
            )
        parameters = self.module.named_parameters()
        frozen = next((part for part, weights in parameters if not weights.requires_grad), None)
        if frozen is not None:
            raise SettingError(
                f"{name} has a parameter with requires_grad = False, '{frozen}', and training "
                "moves all of them. Let it train (requires_grad_(True)), or keep its numbers in a "
                "plain tensor, which forward brings to the windows' device."
            )
        if self.matrix is not None and self.matrix not in self.layout.shapes:
            names = ", ".join(self.layout.shapes)
            raise SettingError(f"ModuleModel has no parameter '{self.matrix}'. It has: {names}.")

    @cached_property
    def layout(self) -> Layout:
        """The module's own parameters, in its own order."""
        return Layout({name: tuple(p.shape) for name, p in self.module.named_parameters()})

    @property
    def spectral_matrix(self) -> str:
        """The chosen matrix, or the last real one."""
        if self.matrix is not None:
            return self.matrix
        matrices = [n for n, s in self.layout.shapes.items() if len(s) == 2 and min(s) > 1]
        if not matrices:
            raise SettingError(
                f"{type(self.module).__name__} has no weight matrix for a spectral ratio. "
                "Name one with ModuleModel(..., matrix=...) or leave beta_kappa at 0."
            )
        return matrices[-1]

    def initial(self, rng: np.random.Generator) -> Tensor:
        """Return the weights that the module's author gave it: its present ones, or drawn with
        `rng`.
        """
        module = self.module
        if self.make is not None:
            with torch.random.fork_rng(devices=[]):  # torch draws from one generator for all
                torch.manual_seed(int(rng.integers(2**63)))
                module = self.make()
        return torch.cat([p.detach().double().flatten() for p in module.parameters()])

    @property
    def has_representation(self) -> bool:
        """No: a module does not tell its layers apart."""
        return False

    def represent(self, parts: Parts, windows: Tensor) -> Tensor:
        """Return the module's output: which of its layers is the last one is not known here."""
        return self._call(parts, windows).unsqueeze(-1)

    def head(self, parts: Parts, representation: Tensor) -> Tensor:
        """Return the prediction: a wrapped module has no separate head."""
        return representation.squeeze(-1)

    def _copy(self) -> nn.Module:
        """Return this thread's copy of the module: `functional_call` puts weights into it for a
        while.
        """
        copies = _of_this_thread.__dict__.setdefault("copies", WeakKeyDictionary())
        if self not in copies:
            copies[self] = deepcopy(self.module)
        copy: nn.Module = copies[self]
        return copy

    def _call(self, parts: Parts, windows: Tensor) -> Tensor:
        module = self._copy()

        def predict_one(parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
            out: Tensor = functional_call(module, dict(parameters), (x,))
            return out.reshape(len(x))

        lead = windows.shape[:-3]
        if not lead:
            return predict_one(parts, windows)
        stacked = {n: p.reshape(-1, *self.layout.shapes[n]) for n, p in parts.items()}
        try:
            out: Tensor = vmap(predict_one)(stacked, windows.reshape(-1, *windows.shape[-3:]))
        except RuntimeError as error:
            if "random operation" not in str(error):
                raise
            raise SettingError(
                f"{type(self.module).__name__} draws random numbers in its forward (dropout?), and "
                "a vehicle's steps must come out the same wherever they are taken. Leave it out."
            ) from error
        return out.reshape(*lead, -1)
