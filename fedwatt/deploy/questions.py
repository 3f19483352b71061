"""Questions about a method, as the server asks them and a vehicle reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy.messages import ArrayField, Content, ReplyField, Sizes, Value, diagnostic_fields
from fedwatt.deploy.updates import update_fields
from fedwatt.errors import DataError
from fedwatt.methods import Method
from fedwatt.models import Model
from fedwatt.runs.deployment import FULL

SENT: Final = "broadcast."  # prefix of the arrays that a server rule sends besides the model

AFTER: Final = "after"
"""Rounds that a method has trained, in a question about the models that vehicles drive with."""


@dataclass(frozen=True, eq=False)
class RoundQuestion:
    """What a vehicle is asked to train on, and all that it hears of the rest of the fleet."""

    round: int  # t
    counted: int
    """The last round in which the vehicle's reply counted, which it goes on from; -1: none did."""
    population: int  # K
    population_windows: float  # n
    diagnostics: bool  # whether the reply may tell what the rules recorded
    weights: NDArray[Any]  # w_t, [D]
    sent: Mapping[str, NDArray[Any]]  # what the server rule sends besides

    def content(self, common: Mapping[str, Value]) -> Content:
        """The question as a message; `common` says which run and method it is about."""
        values: dict[str, Value] = {
            **common,
            "round": self.round,
            "counted": self.counted,
            "population": self.population,
            "population_windows": self.population_windows,
            "diagnostics": self.diagnostics,
        }
        sent = {SENT + name: array for name, array in self.sent.items()}
        return Content(values, {"weights": self.weights, **sent})

    @classmethod
    def read(cls, question: Content, size: int, precision: str) -> "RoundQuestion":
        """The question on a model of `size` weights that a message holds; DataError if none."""
        read = cls(
            value(question, "round", int),
            value(question, "counted", int),
            value(question, "population", int),
            value(question, "population_windows", float),
            question.values.get("diagnostics") is True,
            weights(question, "weights", "model", size, precision),
            {
                name.removeprefix(SENT): array
                for name, array in question.arrays.items()
                if name.startswith(SENT)
            },
        )
        if read.population < 1 or not read.population_windows > 0:
            raise DataError("the question knows no fleet")
        return read


def value(question: Content, name: str, kind: type) -> Any:
    """A value of a question; DataError if it is not there, or of another kind."""
    found = question.values.get(name)
    if type(found) is not kind:
        raise DataError(f"the question lacks '{name}'")
    return found


def weights(question: Content, name: str, what: str, size: int, precision: str) -> NDArray[Any]:
    """The weights [size] of a model that comes with a question; DataError if there are none.

    They are of the run's `precision`: what is rounded to it on board would be one model under as
    many digests as there are numbers that round to the same.
    """
    found = question.arrays.get(name)
    fits = found is not None and found.shape == (size,) and found.dtype == precision
    if found is None or not fits or not np.isfinite(found).all():
        raise DataError(f"the question holds no {what} of {size} finite {precision} weights")
    return found


def sizes_of(method: Method, model: Model, precision: str, update: str = FULL) -> Sizes:
    """Lengths of what a method's messages hold; `update` is the type of displacements."""
    own = "" if update == FULL else update
    return Sizes(method.adapted(model).layout.size, precision, update=own)


def asked_of(
    method: Method, model: Model, *, diagnostics: bool, update: str = FULL
) -> dict[str, ReplyField]:
    """The further fields that vehicles are asked for when they train by a method."""
    why = f"what vehicles hand up besides Δ_k for {type(method.server).__name__}"
    adapted = method.adapted(model)
    uploads: dict[str, ReplyField] = {
        name: ArrayField(tuple(row.shape), _dtype(row), why)
        for name, row in method.uploads(adapted).items()
    }
    uploads |= update_fields(update, adapted.layout.size)
    return diagnostic_fields(method.records) | uploads if diagnostics else uploads


def _dtype(template: Tensor) -> str:
    return "model" if template.dtype == torch.float32 else str(template.dtype).split(".")[-1]
