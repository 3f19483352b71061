"""A question about a method, with the objects it is about."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedwatt.deploy.messages import Content, ReplyField
from fedwatt.deploy.questions import RoundQuestion, asked_of, value, weights
from fedwatt.federation import LocalFleet
from fedwatt.methods import Method
from fedwatt.runs.config import MethodChoice, RunConfig


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
    def size(self) -> int:
        """D, of the model as the method trains it."""
        return self.method.adapted(self.local.model).layout.size

    @property
    def run(self) -> str:
        """The number of the run."""
        return str(value(self.question, "run", str))

    @property
    def asked(self) -> dict[str, ReplyField]:
        """The further fields that the method, or a server that diagnoses, asks of training."""
        diagnostics = self.question.values.get("diagnostics") is True
        update = self.config.deploy.update_type
        return asked_of(self.method, self.local.model, diagnostics=diagnostics, update=update)

    def weights(self) -> Tensor:
        """The model that the question is about, [1, D]."""
        precision = self.local.training.precision
        found = weights(self.question, "weights", "model", self.size, precision)
        return torch.from_numpy(found)[None]

    def round_question(self) -> RoundQuestion:
        """The question as one to train; DataError if it is none."""
        return RoundQuestion.read(self.question, self.size, self.local.training.precision)
