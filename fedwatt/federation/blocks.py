"""Local steps on a processor: a few vehicles at a time, as many as a core's cache holds.

A stack of thirty models does not fit into the cache, so every pass over it would wait for memory.
The stack is cut into blocks of a few vehicles, and a block takes all its steps before the next one
starts. Each core works on blocks of its own, so that no step waits for another core.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from time import perf_counter
from typing import Final

import torch
from torch import Tensor

from fedwatt.cores import spread
from fedwatt.engine.batches import StackedBatches
from fedwatt.engine.pool import Pool
from fedwatt.federation.compiled import compiled_round
from fedwatt.federation.fused import fused_step
from fedwatt.federation.local import final, is_shaped, move, shaped_gradient, turn
from fedwatt.methods.rule import LocalRule, Rows, Start, lifted
from fedwatt.metrics import Stopwatch

CACHE_BYTES: Final = 3 * 2**20
"""What a block works on, unless one vehicle needs more: about a core's share of the caches."""


@dataclass(frozen=True)
class Block:
    """Vehicles that train side by side, A of them, and what they need for their steps."""

    rules: tuple[LocalRule, ...]
    plans: tuple[Rows, ...]
    start: Start
    """Of the whole stack: only the model and the loss are read."""
    anchor: Tensor
    """[A, D]"""
    rate: float | Tensor
    """η_t, or [A, 1]"""
    pool: Pool
    batches: tuple[Tensor, ...]
    """(starts, labels, shares) of these vehicles, each [steps, A, batch]."""
    steps: Sequence[int]
    """H_k in descending order."""

    def part(self, rows: slice, during: slice = slice(None)) -> "Block":
        """Some of the vehicles, in some of the steps."""
        return replace(
            self,
            rules=tuple(_part(rule, rows) for rule in self.rules),
            plans=tuple({n: values[rows] for n, values in plan.items()} for plan in self.plans),
            anchor=self.anchor[rows],
            rate=self.rate[rows] if isinstance(self.rate, Tensor) else self.rate,
            batches=tuple(values[during, rows] for values in self.batches),
            steps=self.steps[rows],
        )


def train_blocks(
    rules: Sequence[LocalRule],
    plans: Sequence[Rows],
    start: Start,
    rate: float | Tensor,
    batches: StackedBatches,
    steps: Sequence[int],
    watch: Stopwatch,
) -> Tensor:
    """Δ_k = w_k - w_t of every vehicle, [P, D].

    `steps` holds H_k in descending order; `plans` what each rule worked out in its `begin`; `rate`
    is η_t, or [P, 1] where it is not the same for all.
    """
    task = (start.model, start.loss)
    in_c = compiled_round(rules, plans, task, start.anchor, rate, batches)
    if in_c is not None:

        def one(row: int) -> dict[str, float]:
            begin = perf_counter()
            _, moving = in_c(row, steps[row])
            return {"training": perf_counter() - begin - moving, in_c.cost: moving}

        with watch.divided() as spent:
            spent += spread(one, range(len(steps)))
        return in_c.deltas
    deltas = torch.empty_like(start.anchor)
    whole = Block(
        tuple(rules),
        tuple(plans),
        start,
        start.anchor,
        rate,
        batches.pool,
        batches.tensors,
        steps,
    )
    numbers = start.model.step_numbers(batches.size)
    limit = CACHE_BYTES // (numbers * start.anchor.element_size())

    def work(rows: slice) -> dict[str, float]:
        own = Stopwatch()
        with own.section("training"):
            deltas[rows] = train_block(whole.part(rows), own)
        return own.seconds

    with watch.divided() as spent:
        spent += spread(work, list(cut(len(steps), max(1, limit))), large=limit == 0)
    return deltas


def cut(rows: int, limit: int) -> Iterator[slice]:
    """Even blocks of at most `limit` rows; a multiple of four, if several, to keep cores busy.

    >>> [(block.start, block.stop) for block in cut(10, 3)]
    [(0, 3), (3, 5), (5, 8), (8, 10)]
    """
    count = ceil(rows / limit)
    if count > 1:
        count = min(rows, 4 * ceil(count / 4))
    return (slice(*pair) for pair in pairwise(ceil(rows * i / count) for i in range(count + 1)))


def train_block(block: Block, watch: Stopwatch) -> Tensor:
    """Δ_k [A, D] of the vehicles of one block."""
    weights = block.anchor.clone()
    previous = weights.clone() if any(rule.looks_back for rule in block.rules) else None
    for first, last, active in spans(block.steps):
        rows = slice(0, active)
        own = block.part(rows, slice(first, last))
        _take(own, first, weights[rows], None if previous is None else previous[rows], watch)
    return final(weights, previous, block.steps) - block.anchor


def spans(steps: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(first step, one past the last, vehicles at work) while these stay the same.

    >>> list(spans([5, 5, 2]))
    [(0, 2, 3), (2, 5, 2)]
    """
    begin = 0
    for active in range(len(steps), 0, -1):
        if steps[active - 1] > begin:
            yield begin, steps[active - 1], active
            begin = steps[active - 1]


def _take(
    block: Block, first: int, weights: Tensor, previous: Tensor | None, watch: Stopwatch
) -> None:
    """All steps of a block in which the same vehicles are at work, from step `first` on."""
    model, loss = task = (block.start.model, block.start.loss)
    all_starts, all_labels, shares = block.batches
    pool, (_, active, size) = block.pool, shares.shape
    gradient = torch.empty_like(weights)
    windows = weights.new_empty((active, size, pool.window, pool.series.shape[1]))
    rows = windows.view(active * size, -1)
    shaped = is_shaped(block.rules, block.plans)
    # Weights and previous weights change places with every step, so there is a way for each turn.
    turns = [turn(weights, previous, step) for step in range(1 if previous is None else 2)]
    fills = [model.prepared(here, windows, gradient, loss) for here, _ in turns]
    advance = fused_step(block.rules, block.plans, block.rate, block.anchor)
    batches = (all_starts.flatten(1), all_labels, shares)
    for step, (starts, labels, share) in enumerate(
        zip(*(values.unbind(0) for values in batches), strict=True), start=first
    ):
        here, before = turns[step % len(turns)]
        torch.index_select(pool.rows, 0, starts, out=rows)
        if shaped:
            batch = (windows, labels, share)
            gradient = shaped_gradient(block.rules, block.plans, task, here, block.anchor, batch)
        else:
            fills[step % len(turns)](labels, share)
        if advance is not None:
            with watch.section(advance.cost):
                advance(gradient, here, before, first=step == 0)
        else:
            move(
                block.rules,
                block.plans,
                gradient,
                here,
                before,
                block.anchor,
                block.rate,
                first=step == 0,
                watch=watch,
            )


def _part(rule: LocalRule, rows: slice) -> LocalRule:
    """The rule for some rows, where any of its numbers are columns [P, 1]."""
    columns = {name: value for name, value in vars(rule).items() if isinstance(value, Tensor)}
    return lifted(rule, {n: values[rows] for n, values in columns.items()}) if columns else rule
