"""What a vehicle's rules do before the first step of a round and after the last."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.metrics import Stopwatch


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
        with watch.section(rule.begin_timed_as), torch.no_grad():
            own, plan = rule.begin(own, start)
        memory = memory | own
        plans.append(plan)
    return memory, plans
