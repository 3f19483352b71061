"""A federation as one of its vehicles sees it: a fleet of one, and what it was told."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.data import Fleet
from fedwatt.data.client import Client
from fedwatt.deploy.messages import ArrayField, ReplyField, Sizes, diagnostic_fields
from fedwatt.engine.call import Call
from fedwatt.federation import Federation, State
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.metrics import Stopwatch
from fedwatt.runs.config import MethodChoice, RunConfig

BROADCAST = "broadcast."
"""Prefix of the arrays that a server rule sends besides the model."""


class OnBoard(Federation):
    """A federation as one of its vehicles sees it: its own data, and what it was told."""

    def __init__(self, client: Client, config: RunConfig, choice: MethodChoice) -> None:
        alone = Fleet((client,), config.data, "this vehicle")
        super().__init__(
            alone,
            config.model.on(alone),
            training=choice.training(config.training),
            availability=config.availability,
            seeds=config.seeds,
            device="cpu",
        )
        self.told: Rows = {}
        self.told_population = 1

    @property
    def population_size(self) -> int:
        """K, as the server says."""
        return self.told_population

    def _broadcast(self, method: Method, state: State) -> Rows:
        return self.told

    def sizes(self, method: Method) -> Sizes:
        """Lengths of what this method's messages hold."""
        return sizes_of(self, method)

    def work(
        self, method: Method, round: int, weights: NDArray[Any], memory: Rows
    ) -> tuple[NDArray[Any], Rows, Rows, dict[str, float]]:
        """One round: (Δ_k [D], memory afterwards, uploads, what the rules recorded)."""
        anchor = torch.from_numpy(weights).to(self.dtype)[None]
        none = torch.zeros(1, dtype=torch.int64)
        state = State(
            round=round,
            weights=anchor,
            server={},
            memory={name: row[None, None] for name, row in memory.items()},
            available=torch.ones(1, 1, dtype=torch.bool),
            diverged=none,
            best_weights=anchor,
            best_round=none,
            best_validation=none.double(),
            best_test=none.double(),
        )
        done = self._train(method, state, [Call(0, 0, self._steps(0, 0))], Stopwatch())
        return (
            done.deltas[0].numpy(),
            {name: rows[0] for name, rows in done.memory.items()},
            {name: rows[0] for name, rows in done.uploads.items()},
            {name: float(rows[0]) for name, rows in done.columns.items()},
        )


def sizes_of(federation: Federation, method: Method) -> Sizes:
    """Lengths of what a method's messages hold."""
    return Sizes(federation.model_for(method).layout.size, federation.training.precision)


def asked_of(federation: Federation, method: Method, *, diagnostics: bool) -> dict[str, ReplyField]:
    """The further fields that vehicles are asked for when they train by a method."""
    why = f"what vehicles hand up besides Δ_k for {type(method.server).__name__}"
    uploads: dict[str, ReplyField] = {
        name: ArrayField(tuple(row.shape), _dtype(row), why)
        for name, row in method.uploads(federation.model_for(method)).items()
    }
    return diagnostic_fields(method.records) | uploads if diagnostics else uploads


def _dtype(template: Tensor) -> str:
    return "model" if template.dtype == torch.float32 else str(template.dtype).split(".")[-1]


def uploads_of(method: Method) -> list[str]:
    """Names of what a method's vehicles hand up besides Δ_k."""
    return method.upload_names
