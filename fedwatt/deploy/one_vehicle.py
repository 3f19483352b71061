"""A vehicle's own work as a stack of one: a round and what it hands up, the errors of a model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy import memory
from fedwatt.deploy.guard import Guard
from fedwatt.deploy.messages import Content
from fedwatt.deploy.questions import AFTER, RoundQuestion, Task, sent_with, value
from fedwatt.deploy.updates import RESIDUAL, ROUNDING, rounded
from fedwatt.engine.call import Call
from fedwatt.engine.together import train
from fedwatt.federation import LocalFleet, local_round
from fedwatt.federation.evaluate import stratum_errors, vehicle_errors
from fedwatt.federation.terms import Terms
from fedwatt.federation.work import Work
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.metrics import ErrorSums, Stopwatch
from fedwatt.privacy.check_words import CheckKey
from fedwatt.privacy.fixed_point import FloatArray, Layout
from fedwatt.privacy.hiding import noisy
from fedwatt.privacy.secure.compose import reply_layout, reply_values
from fedwatt.privacy.secure_settings import Terms as SumTerms
from fedwatt.runs.config import MethodChoice, RunConfig
from fedwatt.runs.deployment import FULL
from fedwatt.windows import Fleet
from fedwatt.windows.client import Client
from fedwatt.windows.labelled import SHARED_STRATA


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
    broadcast = local_round.Broadcast(
        question.round,
        model,
        _rows(question.sent, model),
        question.population,
        question.population_windows,
        own_seed,
    )
    speed = local.terms.speed(0, local.members.name(0))
    call = Call(0, 0, local.terms.steps(local.members.windows(0), speed))
    before = {name: row[None] for name, row in kept.items()}
    begun = local_round.begin_round(local, method, broadcast, before, [call], Stopwatch())
    return local_round.finish_round(local, method, begun, train(begun.job))


def _rows(sent: Mapping[str, NDArray[Any]], model: Tensor) -> Rows:
    """What a server rule sends, as a stack of one beside the model [1, D]."""
    rows = {name: torch.from_numpy(array)[None] for name, array in sent.items()}
    return {name: local_round.like(own, model) for name, own in rows.items()}


def driven_model(
    local: LocalFleet, method: Method, model: Tensor, question: Content, folder: Path
) -> Tensor:
    """The model [1, D] that a vehicle drives with after a round of a method.

    `model` [1, D] is the server's; what the vehicle remembers of the method is in `folder`.
    """
    kept = memory.latest(
        folder, local_round.initial_memory(method, method.adapted(local.model), model[0])
    )
    after, windows = value(question, AFTER, int), float(max(1, local.members.windows(0)))
    rows = _rows(sent_with(question), model)
    broadcast = local_round.Broadcast(after, model, rows, 1, windows)
    before = {name: row[None] for name, row in kept.items()}
    return local_round.vehicle_models(local, method, broadcast, before, [Call(0, 0, 0)])


def sums_by_stratum(local: LocalFleet, predictions: NDArray[np.float64]) -> dict[str, ErrorSums]:
    """Error sums of a vehicle's test windows, all and by stratum, from scaled predictions [W]."""
    clients, windows = local.fleet.clients, local.pool.test
    total = vehicle_errors(clients, "test", windows, predictions)[0]
    parts = stratum_errors(clients, windows, predictions)[0]
    shared = {name: own for name, own in parts.items() if name.partition(":")[0] in SHARED_STRATA}
    return {"all": total} | shared


def by_stratum(parts: Mapping[str, ErrorSums]) -> Content:
    """Error sums by stratum as a message."""
    sums = np.stack([own.as_array() for own in parts.values()])
    return Content({"strata": list(parts)}, {"sums": sums})


def round_summand(
    task: Task,
    arrays: Mapping[str, NDArray[Any]],
    guard: Guard,
    terms: SumTerms,
    check: CheckKey | None = None,
) -> tuple[Layout, dict[str, FloatArray]]:
    """The vector of a sum on `terms` from Δ and what else was trained."""
    method, model = task.method, task.model
    room = task.config.deploy.room(terms.called)
    layout = reply_layout(method, model, task.config.secure, vehicles=room)
    uploads = {name: torch.from_numpy(array) for name, array in arrays.items()}
    delta = uploads.pop("delta")
    if hiding := guard.hiding(method):
        delta, uploads = noisy(delta, uploads, hiding)
    weight = guard.weight(task.local.members.windows(0), hidden=hiding > 0)
    values = reply_values(method, model, delta, weight, uploads, layout, terms.threshold, check)
    return layout, values


def with_rounding(reply: Content, task: Task, state: Path) -> Content:
    """A reply in the clear with Δ as the run wants it sent; what rounding lost stays in `state`."""
    kind = task.config.deploy.update_type
    if kind == FULL:
        return reply
    question, label = task.round_question(), f"{task.choice.label}/{RESIDUAL}"
    folder = memory.memory_folder(state, task.run, label)
    delta = torch.from_numpy(reply.arrays["delta"])
    before = memory.recall(folder, question.counted, {RESIDUAL: torch.zeros_like(delta)})
    update = rounded(delta, before[RESIDUAL], kind)
    memory.forget_old_runs(state, task.run)
    memory.remember(folder, question.round, {RESIDUAL: update.residual})
    values = {**reply.values, ROUNDING: update.rounding}
    return Content(values, {**reply.arrays, **update.arrays})
