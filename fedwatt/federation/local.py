"""The local work of one round, for a whole stack of vehicles at once.

Vehicles are sorted by their number of steps, so those still at work are always the first rows of
the stack: a finished vehicle drops out, and nobody does work that is not its own.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedwatt.federation.batches import StackedBatches
from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.metrics import Stopwatch
from fedwatt.models.model import Parts


def train_stack(
    rules: Sequence[LocalRule],
    plans: Sequence[Rows],
    start: Start,
    batches: StackedBatches,
    steps: Sequence[int],
    watch: Stopwatch,
) -> Tensor:
    """Δ_k = w_k - w_t of every vehicle, [P, D].

    `steps` holds H_k in descending order; `plans` what each rule worked out in its `begin`.
    """
    weights = start.anchor.clone()
    previous = weights.clone() if any(rule.looks_back for rule in rules) else None
    active = len(steps)
    for step in range(steps[0]):
        while steps[active - 1] <= step:
            active -= 1
        here, anchor = weights[:active], start.anchor[:active]
        own = [{name: rows[:active] for name, rows in plan.items()} for plan in plans]
        windows, labels, share = batches.at(step, active)
        if any(rule.shapes(plan) for rule, plan in zip(rules, own, strict=True)):
            direction = shaped_gradient(rules, own, start, here, anchor, windows, labels, share)
        else:
            direction = start.model.gradient(here, windows, labels, share, start.loss)
        for rule, plan in zip(rules, own, strict=True):
            direction = rule.gradient(direction, here, anchor, plan)
        before = previous[:active] if previous is not None and step > 0 else None
        for rule, plan in zip(rules, own, strict=True):
            with watch.section(rule.step_cost):
                direction = rule.direction(direction, here, before, plan)
        if previous is not None:
            previous[:active] = here
        here.sub_(direction, alpha=start.rate)
    return weights - start.anchor


def shaped_gradient(
    rules: Sequence[LocalRule],
    plans: Sequence[Rows],
    start: Start,
    weights: Tensor,
    anchor: Tensor,
    windows: Tensor,
    labels: Tensor,
    share: Tensor,
) -> Tensor:
    """Gradient [A, D] of a loss that rules have a say in, by plain autograd."""
    choosing_first = sorted(
        zip(rules, plans, strict=True), key=lambda pair: not pair[0].chooses_prediction
    )

    def total(parts: Parts) -> Tensor:
        representation = start.model.represent(parts, windows)
        prediction = start.model.head(parts, representation)
        for rule, plan in choosing_first:
            prediction = rule.prediction(prediction, start.model, parts, windows, plan)
        loss = start.loss(prediction, labels)
        for rule, plan in zip(rules, plans, strict=True):
            loss = loss + rule.penalty(representation, start.model, windows, anchor, plan)
        return (share * loss).sum()

    return start.model.gradient_of(total, weights)


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
