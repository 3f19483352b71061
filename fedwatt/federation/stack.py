"""Vehicles about to train, and several such groups trained as one stack.

Runs that differ in their seeds are one stack from the start. Methods of the same composition that
differ in their numbers (a rate, a pull, an order α) or in what the server does can share a stack,
too: their rows are put together for the steps and taken apart again afterwards. On a GPU, where a
step of ten vehicles takes about as long as one of fifty, a tuning grid costs little more than a
trial.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedwatt.engine.batches import Draw, StackedBatches
from fedwatt.engine.call import Call
from fedwatt.engine.pool import Pool
from fedwatt.federation.blocks import train_blocks
from fedwatt.federation.recorded import train_recorded
from fedwatt.methods.rule import LocalRule, Rows, Start, composition, lifted, numbers
from fedwatt.metrics import Stopwatch


@dataclass(frozen=True)
class Stack:
    """P vehicles before their first step, those with the most steps first."""

    calls: tuple[Call, ...]
    rules: tuple[LocalRule, ...]
    start: Start
    memory: Rows
    plans: tuple[Rows, ...]
    draws: tuple[Draw, ...]
    tf32: bool

    @property
    def kind(self) -> tuple[Hashable, ...]:
        """What stacks that train together have in common."""
        names = tuple(tuple(plan) for plan in self.plans)
        batch = self.draws[0].batch
        task = (self.start.model, self.start.loss, self.tf32)
        return composition(self.rules), task, batch, names


def train_together(pool: Pool, stacks: Sequence[Stack], watch: Stopwatch) -> list[Tensor]:
    """Δ_k [P, D] of each stack; all are of one kind and on one pool."""
    if len(stacks) == 1:
        (one,) = stacks
        return [_train(pool, one, one.start.rate, watch)]
    lengths = [len(stack.calls) for stack in stacks]
    calls = [call for stack in stacks for call in stack.calls]
    order = sorted(range(len(calls)), key=lambda row: -calls[row].steps)
    device = stacks[0].start.anchor.device
    index = torch.tensor(order, device=device)

    def rows(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts)).index_select(0, index.to(parts[0].device))

    def column(values: Sequence[float | Tensor]) -> Tensor:
        like = stacks[0].start.anchor
        return rows([like.new_full((n, 1), float(v)) for v, n in zip(values, lengths, strict=True)])

    def stacked(same: Sequence[LocalRule]) -> LocalRule:
        names = numbers(same[0])
        return lifted(same[0], {n: column([numbers(rule)[n] for rule in same]) for n in names})

    rules = tuple(stacked(s) for s in zip(*(stack.rules for stack in stacks), strict=True))
    plans = tuple(
        {name: rows([plan[name] for plan in same]) for name in same[0]}
        for same in zip(*(stack.plans for stack in stacks), strict=True)
    )
    draws = [one for stack in stacks for one in stack.draws]
    merged = Stack(
        tuple(calls[row] for row in order),
        rules,
        replace(stacks[0].start, anchor=rows([stack.start.anchor for stack in stacks])),
        {},
        plans,
        tuple(draws[row] for row in order),
        stacks[0].tf32,
    )
    deltas = _train(pool, merged, column([stack.start.rate for stack in stacks]), watch)
    back = torch.empty_like(index)
    back[index] = torch.arange(len(order), device=device)
    return list(torch.split(deltas.index_select(0, back), lengths))


def _train(pool: Pool, stack: Stack, rate: float | Tensor, watch: Stopwatch) -> Tensor:
    steps = [call.steps for call in stack.calls]
    vehicles = [call.vehicle for call in stack.calls]
    batches = StackedBatches(pool, pool.train, vehicles, stack.draws)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if stack.tf32 else "highest")
    try:
        return train(stack.rules, stack.plans, stack.start, rate, batches, steps, watch)
    finally:
        torch.set_float32_matmul_precision(before)


def train(
    rules: Sequence[LocalRule],
    plans: Sequence[Rows],
    start: Start,
    rate: float | Tensor,
    batches: StackedBatches,
    steps: Sequence[int],
    watch: Stopwatch,
) -> Tensor:
    """Δ_k [P, D], wherever the stack is; on a GPU the time of all steps is booked as training."""
    if start.anchor.is_cuda:
        return train_recorded(rules, plans, start, rate, batches, steps)
    return train_blocks(rules, plans, start, rate, batches, steps, watch)
