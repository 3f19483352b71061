"""Everything that passes from one round to the next, for R runs (seeds) of one method."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from fedwatt.methods.rule import Rows


@dataclass(frozen=True)
class State:
    """The federation between two rounds: all that a checkpoint has to hold."""

    round: int
    """Completed rounds, t."""
    weights: Tensor
    """Global models w_t, [R, D]."""
    server: Rows
    """What the server rule keeps, each [R, ...]."""
    memory: Rows
    """What the vehicles remember, each [R, K, ...]."""
    available: Tensor
    """A_t as a mask, [R, K]."""
    diverged: Tensor
    """Round after which a run was no longer finite, [R]; 0 while it is well."""
    best_weights: Tensor
    """The model with the lowest validation RMSE so far, [R, D]."""
    best_round: Tensor
    """Its round, [R]."""
    best_validation: Tensor
    """Its validation RMSE, Wh, [R], float64."""
    best_test: Tensor
    """Its test RMSE, Wh, [R], float64."""

    def tensors(self) -> dict[str, Tensor]:
        """All tensors under flat names, as a checkpoint stores them."""
        flat: dict[str, Tensor] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                flat[field.name] = value
            elif isinstance(value, dict):
                flat |= {f"{field.name}.{name}": tensor for name, tensor in value.items()}
        return flat

    def to(self, device: torch.device) -> "State":
        """The state with its models and memories on `device`; masks and scores stay on the host."""
        on_device = ("weights", "best_weights", "server.", "memory.")
        moved = {
            n: t.to(device) if n.startswith(on_device) else t for n, t in self.tensors().items()
        }
        return State.from_tensors(self.round, moved)

    @classmethod
    def from_tensors(cls, round: int, flat: Mapping[str, Tensor]) -> "State":
        """The state that `tensors` took apart."""

        def group(prefix: str) -> Rows:
            return {n.removeprefix(prefix): t for n, t in flat.items() if n.startswith(prefix)}

        plain = {name: tensor for name, tensor in flat.items() if "." not in name}
        return cls(round=round, server=group("server."), memory=group("memory."), **plain)
