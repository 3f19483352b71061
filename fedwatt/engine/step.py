"""One step of a stack of vehicles, as the fast engines share it.

Vehicles are sorted by their number of steps, so those still at work are always the first rows of
the stack: a finished vehicle drops out and costs no more work.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from fedwatt.engine.job import Job
from fedwatt.methods.rule import LocalRule, Rows, StepLoss, explores
from fedwatt.models.model import Parts

Batch = tuple[Tensor, Tensor, Tensor]
"""(windows [A, batch, window, features], labels [A, batch], shares [A, batch])."""
Gradient = Callable[[Tensor], Tensor]
"""Weights [A, D] → the gradient of a step's loss there, [A, D]."""


def present_and_previous(
    weights: Tensor, previous: Tensor | None, step: int
) -> tuple[Tensor, Tensor | None]:
    """Return (w_h, w_{h-1}), which swap buffers after each step."""
    if previous is None or step % 2 == 0:
        return weights, previous
    return previous, weights


def final(weights: Tensor, previous: Tensor | None, steps: Sequence[int]) -> Tensor:
    """Return each vehicle's weights after its last step, from the buffer that holds them."""
    if previous is None:
        return weights
    odd = torch.tensor([count % 2 == 1 for count in steps], device=weights.device)
    return torch.where(odd[:, None], previous, weights)


def first_rows(rows: Rows, active: int) -> Rows:
    """Return views of the first `active` rows of all entries."""
    return {name: values[:active] for name, values in rows.items()}


def direction(
    rules: Sequence[LocalRule],
    plans: Sequence[Rows],
    gradient: Tensor,
    weights: Tensor,
    previous: Tensor | None,
    anchor: Tensor,
) -> Tensor:
    """Return u_h [A, D] from the gradient of the loss at w_h, `weights`; all [A, D].

    `previous` is w_{h-1}, None at the first step. This is all that a method's rules do to the
    weights in a step: C is generated from it, and a GPU replays it.
    """
    for rule, plan in zip(rules, plans, strict=True):
        gradient = rule.gradient(gradient, weights, anchor, plan)
    for rule, plan in zip(rules, plans, strict=True):
        gradient = rule.direction(gradient, weights, previous, plan)
    return gradient


def move(
    rules: Sequence[LocalRule],
    plans: Sequence[Rows],
    gradient: Tensor,
    weights: Tensor,
    previous: Tensor | None,
    anchor: Tensor,
    learning_rate: float | Tensor,
    *,
    first: bool,
) -> None:
    """Write w_{h+1} = w_h - η u_h over w_{h-1}, or over w_h where no rule needs w_{h-1}.

    `learning_rate` is η or [A, 1].
    """
    before = None if first else previous
    step = direction(rules, plans, gradient, weights, before, anchor)
    if not isinstance(learning_rate, Tensor):
        torch.sub(weights, step, alpha=learning_rate, out=weights if previous is None else previous)
    elif previous is None:
        weights.addcmul_(step, learning_rate, value=-1)
    else:
        previous.copy_(torch.addcmul(weights, step, learning_rate, value=-1))


@contextmanager
def measured(path: Tensor | None, here: Tensor, before: Tensor | None) -> Iterator[None]:
    """Add the length of the step that is taken meanwhile to `path` [A], if there is one.

    `here` and `before` are what `move` is given, and so where its result goes.
    """
    old = None if path is None else here.clone()
    yield
    if path is not None and old is not None:
        after = here if before is None else before
        path += torch.linalg.vector_norm(after - old, dim=-1, dtype=torch.float64)


def shaped_losses(job: Job, parts: Parts, batch: Batch) -> Tensor:
    """Return the loss [A] of each vehicle on its batch, with the rules' penalties, at weights
    `parts`.
    """
    windows, labels, share = batch
    rules = list(zip(job.rules, job.plans, strict=True))
    representation = job.model.representation(parts, windows)
    prediction = job.model.head(parts, representation)
    for rule, plan in sorted(rules, key=lambda pair: not pair[0].chooses_prediction):
        prediction = rule.prediction(prediction, job.model, parts, windows, plan)
    value = job.loss(prediction, labels)
    for rule, plan in rules:
        value = value + rule.penalty(representation, job.model, windows, job.anchor, plan)
    return (share * value).sum(dim=-1)


def shaped_gradient(job: Job, weights: Tensor, batch: Batch) -> Tensor:
    """Return the gradient [A, D] of a loss that rules change, by autograd."""
    return job.model.gradient_of(lambda parts: shaped_losses(job, parts, batch).sum(), weights)


def explored_gradient(job: Job, weights: Tensor, batch: Batch, *, shaped: bool = True) -> Tensor:
    """Return the gradient [A, D] of a step at `weights` [A, D], as rules that explore make it.

    `shaped`: rules have a say in the loss, so that gradients are taken by plain autograd.
    """

    def gradient(point: Tensor) -> Tensor:
        if shaped:
            return shaped_gradient(job, point, batch)
        return job.model.gradient(point, *batch, job.loss)

    def value(point: Tensor) -> Tensor:
        with torch.no_grad():
            return shaped_losses(job, job.model.layout.split(point), batch)

    loss = StepLoss(gradient, value, job.learning_rate)
    return through_rules(job.rules, job.plans, job.anchor, loss).gradient(weights)


def through_rules(
    rules: Sequence[LocalRule], plans: Sequence[Rows], anchor: Tensor, loss: StepLoss
) -> StepLoss:
    """Return the loss with the gradient that rules make of it, each of what those before it have
    made.
    """
    for rule, plan in zip(rules, plans, strict=True):
        if explores(rule):
            loss = replace(loss, gradient=partial(rule.explore, loss, anchor=anchor, plan=plan))
    return loss
