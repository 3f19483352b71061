"""Train a job where it is, and several jobs of one kind as one stack.

Runs that differ in their seeds are one stack from the start. Methods of the same composition that
differ in their numbers (a rate, a pull, an order α) or in what the server does can share a stack,
too: their rows are put together for the steps and taken apart again afterwards. On a GPU, where a
step of ten vehicles takes about as long as one of fifty, a tuning grid costs little more than a
trial.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedwatt.engine import cpu, gpu
from fedwatt.engine.batches import Batches
from fedwatt.engine.job import Job
from fedwatt.methods.rule import LocalRule, lifted, numbers
from fedwatt.metrics import Stopwatch


def train(job: Job, watch: Stopwatch | None = None) -> Tensor:
    """Return Δ_k = w_k - w_t [P, D]; on a GPU the time of all steps is booked as training."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if job.tf32 else "highest")
    try:
        if job.anchor.is_cuda:
            return gpu.train(job)
        return cpu.train(job, watch or Stopwatch())
    finally:
        torch.set_float32_matmul_precision(before)


def train_together(jobs: Sequence[Job], watch: Stopwatch) -> list[Tensor]:
    """Return Δ_k [P, D] of each job; all are of one kind."""
    apart = jobs[0].deterministic and not jobs[0].anchor.is_cuda
    if len(jobs) == 1 or apart:  # C has a job's own numbers in float64, those of a stack in float32
        return [train(job, watch) for job in jobs]
    lengths = [len(job.steps) for job in jobs]
    steps = [count for job in jobs for count in job.steps]
    order = sorted(range(len(steps)), key=lambda row: -steps[row])
    index = torch.tensor(order, device=jobs[0].anchor.device)
    stack = _joined(jobs, order, index)
    try:
        deltas = train(stack, watch)
    except (RuntimeError, TypeError, ValueError):
        # A hook that decides by the value of a number cannot take a column of them, and what fails
        # for another reason fails by itself, too.
        return [train(job, watch) for job in jobs]
    back = torch.empty_like(index)
    back[index] = torch.arange(len(order), device=index.device)
    if stack.path is not None:
        for job, displacement in zip(jobs, torch.split(stack.path[back], lengths), strict=True):
            assert job.path is not None  # all are of one kind
            job.path.copy_(displacement)
    return list(torch.split(deltas.index_select(0, back), lengths))


def _joined(jobs: Sequence[Job], order: Sequence[int], index: Tensor) -> Job:
    """Return the rows of all `jobs`, one after the other, in another `order`; `index` is the
    same.
    """
    first = jobs[0]

    def rows(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts)).index_select(0, index.to(parts[0].device))

    def column(values: Sequence[float | Tensor]) -> Tensor:
        return rows(
            [
                job.anchor.new_full((len(job.steps), 1), float(value))
                for job, value in zip(jobs, values, strict=True)
            ]
        )

    def stacked(same: Sequence[LocalRule]) -> LocalRule:
        names = numbers(same[0])
        return lifted(same[0], {n: column([numbers(rule)[n] for rule in same]) for n in names})

    vehicles = [vehicle for job in jobs for vehicle in job.batches.vehicles]
    draws = [draw for job in jobs for draw in job.batches.draws]
    return replace(
        first,
        rules=tuple(stacked(same) for same in zip(*(job.rules for job in jobs), strict=True)),
        plans=tuple(
            {name: rows([plan[name] for plan in same]) for name in same[0]}
            for same in zip(*(job.plans for job in jobs), strict=True)
        ),
        anchor=rows([job.anchor for job in jobs]),
        path=None if first.path is None else rows([j.path for j in jobs if j.path is not None]),
        learning_rate=column([job.learning_rate for job in jobs]),
        batches=Batches(
            first.batches.pool,
            [vehicles[row] for row in order],
            [draws[row] for row in order],
        ),
    )
