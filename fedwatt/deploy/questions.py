"""Questions about a method, as the server asks them and a vehicle reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy.messages import (
    ArrayField,
    Content,
    ReplyField,
    ReplyForm,
    Sizes,
    Value,
    diagnostic_fields,
)
from fedwatt.deploy.updates import update_fields
from fedwatt.errors import DataError
from fedwatt.federation import LocalFleet
from fedwatt.methods import Method
from fedwatt.models import Model
from fedwatt.runs.config import MethodChoice, RunConfig
from fedwatt.runs.deployment import FULL, Deployment

SENT: Final = "broadcast."  # prefix of the arrays that a server rule sends besides the model

VALUES: Final = {"round": int, "counted": int, "population": int, "population_windows": float}
"""Values that the question of a round must have, and their kinds."""
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
        values = {name: getattr(self, name) for name in (*VALUES, "diagnostics")}
        sent = {SENT + name: array for name, array in self.sent.items()}
        return Content({**common, **values}, {"weights": self.weights, **sent})

    @classmethod
    def read(cls, question: Content, size: int, precision: str) -> "RoundQuestion":
        """The question on a model of `size` weights that a message holds; DataError if none."""
        read = cls(
            **{name: value(question, name, kind) for name, kind in VALUES.items()},
            diagnostics=question.values.get("diagnostics") is True,
            weights=weights(question, "weights", "model", size, precision),
            sent=sent_with(question),
        )
        if read.population < 1 or not read.population_windows > 0:
            raise DataError("the question knows no fleet")
        return read


def sent_with(question: Content) -> dict[str, NDArray[Any]]:
    """What the server rule sends with the model of a question."""
    arrays = question.arrays.items()
    return {name.removeprefix(SENT): own for name, own in arrays if name.startswith(SENT)}


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


def training_form(
    method: Method, model: Model, precision: str, terms: Deployment, *, diagnostics: bool
) -> ReplyForm:
    """What vehicles reply when they train by a method, with its records for `diagnostics`."""
    why = f"what vehicles hand up besides Δ_k for {type(method.server).__name__}"
    adapted, update = method.adapted(model), terms.update_type
    size = adapted.layout.size
    uploads: dict[str, ReplyField] = {
        name: ArrayField(tuple(row.shape), _dtype(row), why)
        for name, row in method.uploads(adapted).items()
    }
    uploads |= update_fields(update, size)
    sizes = Sizes(size, precision, update="" if update == FULL else update)
    told = diagnostic_fields(method.records) if diagnostics else {}
    return ReplyForm("train", sizes, told | uploads)


def _dtype(template: Tensor) -> str:
    return "model" if template.dtype == torch.float32 else str(template.dtype).split(".")[-1]


@dataclass(frozen=True)
class Task:
    """A question with the objects it is about."""

    local: LocalFleet
    """This vehicle alone, with the model and the terms of the method."""
    choice: MethodChoice
    config: RunConfig
    question: Content

    @property
    def method(self) -> Method:
        """The method that it is about."""
        return self.choice.method

    @property
    def model(self) -> Model:
        """The model as the method trains it."""
        return self.method.adapted(self.local.model)

    @property
    def size(self) -> int:
        """D of that model."""
        return self.model.layout.size

    @property
    def run(self) -> str:
        """The number of the run."""
        return str(value(self.question, "run", str))

    @property
    def training_form(self) -> ReplyForm:
        """What a reply to a round says; records of the method only to a server that diagnoses."""
        diagnostics = self.question.values.get("diagnostics") is True
        model, precision = self.local.model, self.local.training.precision
        own = self.config.deploy
        return training_form(self.method, model, precision, own, diagnostics=diagnostics)

    def weights(self) -> Tensor:
        """The model that the question is about, [1, D]."""
        precision = self.local.training.precision
        found = weights(self.question, "weights", "model", self.size, precision)
        return torch.from_numpy(found)[None]

    def round_question(self) -> RoundQuestion:
        """The question as one to train; DataError if it is none."""
        return RoundQuestion.read(self.question, self.size, self.local.training.precision)
