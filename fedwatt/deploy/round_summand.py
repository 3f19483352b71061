"""What a vehicle hands up of a round, made from what its training moved."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from fedwatt.deploy import memory
from fedwatt.deploy.guard import Guard
from fedwatt.deploy.messages import Content
from fedwatt.deploy.task import Task
from fedwatt.deploy.updates import RESIDUAL, ROUNDING, rounded
from fedwatt.methods.bounding import bounded
from fedwatt.privacy.check_words import CheckKey
from fedwatt.privacy.fixed_point import FloatArray, Layout
from fedwatt.privacy.hiding import noisy
from fedwatt.privacy.secure.compose import reply_layout, reply_values
from fedwatt.privacy.secure_settings import Terms
from fedwatt.runs.deployment import FULL


def round_summand(
    task: Task,
    arrays: Mapping[str, NDArray[Any]],
    guard: Guard,
    terms: Terms,
    check: CheckKey | None = None,
) -> tuple[Layout, dict[str, FloatArray]]:
    """The vector of a sum on `terms` from Δ and what else was trained; as long as is allowed."""
    method, model = task.method, task.method.adapted(task.local.model)
    room = task.config.deploy.room(terms.called)
    layout = reply_layout(method, model, task.config.secure, vehicles=room)
    uploads = {name: torch.from_numpy(array) for name, array in arrays.items()}
    delta = bounded(uploads.pop("delta")[None], guard.policy.largest_step)[0]
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
