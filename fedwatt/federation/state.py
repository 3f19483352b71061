"""Everything that passes from one round to the next, for R runs (seeds) of one method."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import torch
from torch import Tensor

from fedwatt.federation.client_state import Paged, Table, gathered
from fedwatt.federation.final_model import keeps_mean, mean_model
from fedwatt.methods.rule import Rows


@dataclass(frozen=True)
class State:
    """The federation between two rounds: all that a checkpoint has to hold."""

    round: int  # completed rounds, t
    weights: Tensor  # global models w_t, [R, D]
    server: Rows  # what the server rule keeps, each [R, ...]
    memory: dict[str, Table]
    """What the vehicles remember, each [R, K, ...]; large tables are on disk."""
    available: Tensor  # A_t as a mask, [R, K]
    diverged: Tensor  # round after which a run was no longer finite, [R]; 0 while it is well
    stopped: Tensor  # round after which a run's patience was at an end, [R]; 0 while it trains
    best_weights: Tensor  # the model with the lowest validation RMSE so far, [R, D]
    best_round: Tensor  # its round, [R]
    best_validation: Tensor  # its validation RMSE in the target's unit, [R], float64
    best_test: Tensor  # its test RMSE in the target's unit, [R], float64
    mean_validation: Tensor
    """Validation RMSE of the mean of the best and the last model, in the target's unit, [R],
    float64; infinite until that is evaluated, after the last round."""
    events: Rows = field(default_factory=dict)
    """What the fleet has to remember: with a buffer its clock, who is at work, and the models they
    work on; of a real fleet what is known of each vehicle."""

    @property
    def live(self) -> list[int]:
        """The runs that are still finite."""
        return (self.diverged == 0).nonzero().flatten().tolist()

    @property
    def at_work(self) -> list[int]:
        """The runs that still train: finite, and not stopped early."""
        return ((self.diverged == 0) & (self.stopped == 0)).nonzero().flatten().tolist()

    @property
    def models(self) -> dict[str, Tensor]:
        """The models that runs leave, named as in `kept.GLOBAL_MODELS`, [R, D] each."""
        return {"kept": self.final_weights, "best": self.best_weights, "last": self.weights}

    @property
    def keeps_mean(self) -> Tensor:
        """Return whether each run keeps the mean of its best and its last model, [R]."""
        return keeps_mean(self.mean_validation, self.best_validation)

    @property
    def final_weights(self) -> Tensor:
        """Each run's final model, [R, D]: the mean, or the best one (`federation.final_model`)."""
        mean = mean_model(self.best_weights, self.weights)
        chosen = self.keeps_mean[:, None].to(mean.device)
        return torch.where(chosen, mean, self.best_weights)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors under flat names, as a checkpoint stores them."""
        flat: dict[str, Tensor] = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, Tensor):
                flat[part.name] = value
            elif isinstance(value, dict):
                for name, values in value.items():
                    if isinstance(values, Paged):
                        flat |= {f"{part.name}.{name}@{n}": t for n, t in values.tensors().items()}
                    else:
                        flat[f"{part.name}.{name}"] = values
        return flat

    def to(self, device: torch.device) -> "State":
        """Return the state with its models and memories on `device`; masks and scores stay on the
        host.
        """
        return replace(
            self,
            weights=self.weights.to(device),
            best_weights=self.best_weights.to(device),
            server={name: table.to(device) for name, table in self.server.items()},
            memory={name: table.to(device) for name, table in self.memory.items()},
            events={n: t.to(device) if n == "models" else t for n, t in self.events.items()},
        )

    @property
    def paged(self) -> list[Paged]:
        """The tables that are on disk."""
        return [table for table in self.memory.values() if isinstance(table, Paged)]

    @classmethod
    def from_tensors(
        cls, round: int, flat: Mapping[str, Tensor], pages: Path | None = None
    ) -> "State":
        """Return the state that `tensors` took apart; `pages` is the folder of tables on disk."""

        def group(prefix: str) -> Rows:
            return {n.removeprefix(prefix): t for n, t in flat.items() if n.startswith(prefix)}

        plain = {name: tensor for name, tensor in flat.items() if "." not in name}
        # Checkpoints of earlier versions know of no mean.
        plain.setdefault("mean_validation", torch.full_like(plain["best_validation"], torch.inf))
        # Checkpoints from before there was early stopping: nothing was stopped.
        plain.setdefault("stopped", torch.zeros_like(plain["diverged"]))
        server = group("server.")
        events = group("events.")
        memory = gathered(group("memory."), pages)
        return cls(round=round, server=server, memory=memory, events=events, **plain)
