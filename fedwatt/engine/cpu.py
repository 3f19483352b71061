"""Local steps on a processor: a few vehicles at a time, as many as a core's cache holds.

A stack of thirty models does not fit into the cache, so every pass over it would wait for memory.
The stack is cut into blocks of a few vehicles, and a block takes all its steps before the next one
starts. Each core works on separate blocks, so that no step waits for another core. Where model,
rules and loss allow it, a vehicle's whole round is one call of C (`kernels.whole_round`).
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import ceil
from time import perf_counter

import torch
from torch import Tensor

from fedwatt.engine.job import Job
from fedwatt.engine.kernels.fused_step import FusedStep, fused_step, step_timed_as
from fedwatt.engine.kernels.whole_round import whole_round
from fedwatt.engine.step import (
    explored_gradient,
    final,
    measured,
    move,
    present_and_previous,
    shaped_gradient,
)
from fedwatt.metrics import Stopwatch
from fedwatt.threads import run_on_cores

CACHE_BYTES = 3 * 2**20
"""What a block works on, unless one vehicle needs more: about a core's share of the caches."""


def train(job: Job, watch: Stopwatch) -> Tensor:
    """Return Δ_k = w_k - w_t of every vehicle, [P, D]."""
    compiled = whole_round(job)
    if compiled is not None:

        def train_row(row: int) -> dict[str, float]:
            begin = perf_counter()
            _, moving = compiled(row, job.steps[row])
            return {"training": perf_counter() - begin - moving, compiled.cost: moving}

        with watch.divided() as spent:
            spent += run_on_cores(train_row, range(len(job.steps)))
        return compiled.deltas
    deltas = torch.empty_like(job.anchor)
    numbers = job.model.step_numbers(job.batches.size)
    limit = CACHE_BYTES // (numbers * job.anchor.element_size())
    if job.deterministic:  # products round by how many of them are taken at once
        limit = 1
    _ = job.batches.tensors  # looked up once, before threads share them

    def work(rows: slice) -> dict[str, float]:
        stopwatch = Stopwatch()
        with stopwatch.section("training"):
            batches = tuple(values[:, rows] for values in job.batches.tensors)
            deltas[rows] = _train_block(job.part(rows), batches, stopwatch)
        return stopwatch.seconds

    with watch.divided() as spent:
        spent += run_on_cores(work, list(cut(len(job.steps), max(1, limit))), large=limit == 0)
    return deltas


def _mover(job: Job, fused: FusedStep | None, watch: Stopwatch) -> Callable[..., None]:
    """Return the function that takes a step in place, timed; in C where rules can be traced."""
    cost = step_timed_as(job.rules)

    def advance(gradient: Tensor, here: Tensor, before: Tensor | None, *, first: bool) -> None:
        with watch.section(cost), measured(job.path, here, before):
            if fused is not None:
                fused(gradient, here, before, first=first)
            else:
                terms = (
                    job.rules,
                    job.plans,
                    gradient,
                    here,
                    before,
                    job.anchor,
                    job.learning_rate,
                )
                move(*terms, first=first)

    return advance


def cut(rows: int, limit: int) -> Iterator[slice]:
    """Cut rows into even blocks of at most `limit`; several blocks are a multiple of four.

    >>> [(block.start, block.stop) for block in cut(10, 3)]
    [(0, 3), (3, 5), (5, 8), (8, 10)]
    """
    count = ceil(rows / limit)
    if count > 1:
        count = min(rows, 4 * ceil(count / 4))
    return (slice(*pair) for pair in pairwise(ceil(rows * i / count) for i in range(count + 1)))


def spans(steps: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (first step, end step, active vehicles) for each span with the same active vehicles.

    >>> list(spans([5, 5, 2]))
    [(0, 2, 3), (2, 5, 2)]
    """
    begin = 0
    for active in range(len(steps), 0, -1):
        if steps[active - 1] > begin:
            yield begin, steps[active - 1], active
            begin = steps[active - 1]


def _train_block(job: Job, batches: Sequence[Tensor], watch: Stopwatch) -> Tensor:
    """Return Δ_k [A, D] of a job that fits into the cache; `batches` are [steps, A, batch]."""
    weights = job.anchor.clone()
    previous = weights.clone() if job.looks_back else None
    for first, last, active in spans(job.steps):
        rows = slice(0, active)
        block = [values[first:last, rows] for values in batches]
        before = None if previous is None else previous[rows]
        _take(job.part(rows), block, first, weights[rows], before, watch)
    return final(weights, previous, job.steps) - job.anchor


def _take(
    job: Job,
    batches: Sequence[Tensor],
    first: int,
    weights: Tensor,
    previous: Tensor | None,
    watch: Stopwatch,
) -> None:
    """Take all steps of a span with the same active vehicles, from step `first` on."""
    all_starts, all_labels, shares = batches
    pool = job.batches.pool
    _, active, size = shares.shape
    gradient = torch.empty_like(weights)
    windows = weights.new_empty((active, size, pool.window, pool.series.shape[1]))
    rows = windows.view(active * size, -1)
    shaped = job.shapes_loss
    explores = job.explores
    # Weights and previous weights change places with every step, so there is a way for each.
    places = [
        present_and_previous(weights, previous, step)
        for step in range(1 if previous is None else 2)
    ]
    fills = [job.model.fill(here, windows, gradient, job.loss) for here, _ in places]
    advance = _mover(job, fused_step(job), watch)
    values = (all_starts.flatten(1), all_labels, shares)
    for step, (starts, labels, share) in enumerate(
        zip(*(each.unbind(0) for each in values), strict=True), start=first
    ):
        here, before = places[step % len(places)]
        torch.index_select(pool.rows, 0, starts, out=rows)
        if explores:
            gradient = explored_gradient(job, here, (windows, labels, share), shaped=shaped)
        elif shaped:
            gradient = shaped_gradient(job, here, (windows, labels, share))
        else:
            fills[step % len(places)](labels, share)
        advance(gradient, here, before, first=step == 0)
