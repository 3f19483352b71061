"""Replies in the clear with rounded displacements: what rounding lost stays on the vehicle's disk.

It is kept under the round of the reply, as a method's memory is (`memory`): the next question names
the last reply that counted, and the vehicle goes on with what that one left.
"""

from pathlib import Path

import torch

from fedwatt.deploy import memory
from fedwatt.deploy.messages import Content
from fedwatt.deploy.task import Task
from fedwatt.deploy.updates import RESIDUAL, ROUNDING, rounded
from fedwatt.runs.deployment import FULL


def with_rounding(reply: Content, task: Task, state: Path) -> Content:
    """The reply to a question to train, with Δ as the run wants it sent."""
    if task.update_type == FULL:
        return reply
    question, label = task.round_question(), f"{task.choice.label}/{RESIDUAL}"
    folder = memory.memory_folder(state, task.run, label)
    delta = torch.from_numpy(reply.arrays["delta"])
    before = memory.recall(folder, question.counted, {RESIDUAL: torch.zeros_like(delta)})
    update = rounded(delta, before[RESIDUAL], task.update_type)
    memory.forget_old_runs(state, task.run)
    memory.remember(folder, question.round, {RESIDUAL: update.residual})
    values = {**reply.values, ROUNDING: update.rounding}
    return Content(values, {**reply.arrays, **update.arrays})
