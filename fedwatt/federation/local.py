"""One step of a stack of vehicles, and what comes before the first and after the last.

Vehicles are sorted by their number of steps, so those still at work are always the first rows of
the stack: a finished vehicle drops out, and nobody does work that is not its own. `blocks` takes
the steps on a processor, `recorded` on a GPU.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.metrics import Stopwatch
from fedwatt.models import Loss, Model
from fedwatt.models.model import Parts


def turn(weights: Tensor, previous: Tensor | None, step: int) -> tuple[Tensor, Tensor | None]:
    """(w_h, w_{h-1}): each step writes over the older of the two, so they change places."""
    if previous is None or step % 2 == 0:
        return weights, previous
    return previous, weights


def final(weights: Tensor, previous: Tensor | None, steps: Sequence[int]) -> Tensor:
    """Each vehicle's weights after its last step, from wherever that step has put them."""
    if previous is None:
        return weights
    odd = torch.tensor([count % 2 == 1 for count in steps], device=weights.device)
    return torch.where(odd[:, None], previous, weights)


def first_rows(rows: Rows, active: int) -> Rows:
    """Views of the first `active` rows of all entries."""
    return {name: values[:active] for name, values in rows.items()}


def is_shaped(rules: Sequence[LocalRule], plans: Sequence[Rows]) -> bool:
    """Whether any rule has a say in the loss."""
    return any(rule.shapes(plan) for rule, plan in zip(rules, plans, strict=True))


def step_gradient(
    rules: Sequence[LocalRule],
    plans: Sequence[Rows],
    task: tuple[Model, Loss],
    weights: Tensor,
    anchor: Tensor,
    batch: tuple[Tensor, Tensor, Tensor],
    *,
    shaped: bool,
) -> Tensor:
    """Gradient [A, D] of the loss of one step; `batch` is (windows, labels, shares)."""
    if shaped:
        return shaped_gradient(rules, plans, task, weights, anchor, batch)
    model, loss = task
    windows, labels, share = batch
    return model.gradient(weights, windows, labels, share, loss)


def move(
    rules: Sequence[LocalRule],
    plans: Sequence[Rows],
    gradient: Tensor,
    weights: Tensor,
    previous: Tensor | None,
    anchor: Tensor,
    rate: float | Tensor,
    *,
    first: bool,
    watch: Stopwatch | None = None,
) -> None:
    """w_{h+1} = w_h - η u_h in place of w_{h-1}, or of w_h where no rule looks back.

    `weights`, `previous` and `anchor` are [A, D]; `rate` is η or [A, 1].
    """
    direction = gradient
    for rule, plan in zip(rules, plans, strict=True):
        direction = rule.gradient(direction, weights, anchor, plan)
    before = None if first else previous
    for rule, plan in zip(rules, plans, strict=True):
        with watch.section(rule.step_cost) if watch is not None else nullcontext():
            direction = rule.direction(direction, weights, before, plan)
    if isinstance(rate, Tensor):
        if previous is None:
            weights.addcmul_(direction, rate, value=-1)
        else:
            previous.copy_(torch.addcmul(weights, direction, rate, value=-1))
    else:
        torch.sub(weights, direction, alpha=rate, out=weights if previous is None else previous)


def shaped_gradient(
    rules: Sequence[LocalRule],
    plans: Sequence[Rows],
    task: tuple[Model, Loss],
    weights: Tensor,
    anchor: Tensor,
    batch: tuple[Tensor, Tensor, Tensor],
) -> Tensor:
    """Gradient [A, D] of a loss that rules have a say in, by plain autograd."""
    (model, loss), (windows, labels, share) = task, batch
    choosing_first = sorted(
        zip(rules, plans, strict=True), key=lambda pair: not pair[0].chooses_prediction
    )

    def total(parts: Parts) -> Tensor:
        representation = model.represent(parts, windows)
        prediction = model.head(parts, representation)
        for rule, plan in choosing_first:
            prediction = rule.prediction(prediction, model, parts, windows, plan)
        value = loss(prediction, labels)
        for rule, plan in zip(rules, plans, strict=True):
            value = value + rule.penalty(representation, model, windows, anchor, plan)
        return (share * value).sum()

    return model.gradient_of(total, weights)


def finish_round(
    rules: Sequence[LocalRule], memory: Rows, plans: Sequence[Rows], start: Start, deltas: Tensor
) -> tuple[Rows, Rows]:
    """Let every rule close the round: (the vehicles' memory afterwards, what they hand up)."""
    uploads: Rows = {}
    start = replace(start, accumulation=accumulation(rules, plans, start))
    for rule, plan in zip(rules, plans, strict=True):
        own = {name: memory[name] for name in rule.memory(start.model)}
        own, handed_up = rule.finish(own, plan, start, deltas)
        memory = memory | own
        uploads |= handed_up
    return memory, uploads


def accumulation(rules: Sequence[LocalRule], plans: Sequence[Rows], start: Start) -> Tensor:
    """‖a_k‖₁ of every vehicle, [P], float64: what FedNova divides by."""
    told = [rule.accumulation(start, plan) for rule, plan in zip(rules, plans, strict=True)]
    return next((a for a in told if a is not None), start.steps.double())


def begin_round(
    rules: Sequence[LocalRule], memory: Rows, start: Start, watch: Stopwatch
) -> tuple[Rows, list[Rows]]:
    """Let every rule probe and plan: (the vehicles' memory afterwards, a plan for each rule)."""
    plans = []
    for rule in rules:
        own = {name: memory[name] for name in rule.memory(start.model)}
        with watch.section(rule.begin_cost), torch.no_grad():
            own, plan = rule.begin(own, start)
        memory = memory | own
        plans.append(plan)
    return memory, plans
