"""A vehicle's own work as a stack of one: a round, and the errors of a model."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.data import Fleet
from fedwatt.data.client import Client
from fedwatt.deploy import memory
from fedwatt.deploy.messages import Content
from fedwatt.deploy.questions import AFTER, SENT, RoundQuestion, value
from fedwatt.engine.call import Call
from fedwatt.engine.together import train
from fedwatt.federation import LocalFleet, local_round
from fedwatt.federation.evaluate import stratum_errors, vehicle_errors
from fedwatt.federation.terms import Terms
from fedwatt.federation.work import Work
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.metrics import ErrorSums, Stopwatch
from fedwatt.runs.config import MethodChoice, RunConfig


def fleet_of_one(client: Client, config: RunConfig, choice: MethodChoice) -> LocalFleet:
    """A vehicle alone, with the model and the terms of a method."""
    alone = Fleet((client,), config.data, "this vehicle")
    terms = Terms(choice.training(config.training), config.availability, config.seeds)
    return LocalFleet(alone, config.model.on(alone), terms, device="cpu")


def local_work(
    local: LocalFleet,
    method: Method,
    question: RoundQuestion,
    kept: Rows,
    own_seed: int | None = None,
) -> Work:
    """One round of a vehicle alone, as a stack of one; `kept` is its memory, without that axis.

    Its batches are those of a simulation, or drawn by `own_seed`.
    """
    model = torch.from_numpy(question.weights).to(local.dtype)[None]
    sent = {name: torch.from_numpy(array)[None] for name, array in question.sent.items()}
    broadcast = local_round.Broadcast(
        question.round,
        model,
        {name: local_round.like(rows, model) for name, rows in sent.items()},
        question.population,
        question.population_windows,
        own_seed,
    )
    speed = local.terms.speed(0, local.members.name(0))
    call = Call(0, 0, local.terms.steps(local.members.windows(0), speed))
    before = {name: row[None] for name, row in kept.items()}
    begun = local_round.begin_round(local, method, broadcast, before, [call], Stopwatch())
    return local_round.finish_round(local, method, begun, train(begun.job))


def driven_model(
    local: LocalFleet, method: Method, model: Tensor, question: Content, folder: Path
) -> Tensor:
    """The model [1, D] that a vehicle drives with after a round of a method.

    `model` [1, D] is the server's; what the vehicle remembers of the method is in `folder`.
    """
    kept = memory.latest(
        folder, local_round.initial_memory(method, method.adapted(local.model), model[0])
    )
    arrays = question.arrays.items()
    sent = {n.removeprefix(SENT): torch.from_numpy(a)[None] for n, a in arrays if SENT in n}
    broadcast = local_round.Broadcast(
        value(question, AFTER, int),
        model,
        {name: local_round.like(rows, model) for name, rows in sent.items()},
        1,
        float(max(1, local.members.windows(0))),
    )
    before = {name: row[None] for name, row in kept.items()}
    return local_round.vehicle_models(local, method, broadcast, before, [Call(0, 0, 0)])


def sums_by_stratum(local: LocalFleet, predictions: NDArray[np.float64]) -> dict[str, ErrorSums]:
    """Error sums of a vehicle's test windows, all and by stratum, from scaled predictions [W]."""
    clients, windows = local.fleet.clients, local.pool.test
    total = vehicle_errors(clients, "test", windows, predictions)[0]
    return {"all": total} | stratum_errors(clients, windows, predictions)[0]


def by_stratum(parts: Mapping[str, ErrorSums]) -> Content:
    """Error sums by stratum as a message."""
    sums = np.stack([own.as_array() for own in parts.values()])
    return Content({"strata": list(parts)}, {"sums": sums})
