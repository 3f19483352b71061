"""Local steps on a GPU, recorded once and replayed: no Python and no waiting between steps.

A step of small models is some twenty short kernels, and launching each takes longer than running
it. A CUDA graph launches all of them at once, but repeats the same work on the same memory. So a
stack's weights, plans and batches lie in buffers that stay where they are and are filled in each
round, and the number of the step is itself a number on the GPU.

One graph is recorded for each number of vehicles still at work. The first step of a kind is taken
plainly, which lets libraries and compilers prepare, and recorded when it comes again.

Products round differently by how many are taken at once, so a vehicle's numbers depend on the other
vehicles in its stack. Where a job is to be deterministic, its stack is cut into slabs of `SLAB`
rows that take all their steps in turn, all rows to the end: every operation then has the same
shape, whatever the stack, and rows do not mix. Rows that have done their steps have a learning rate
of 0.

Last measured on 19 November 2026, on an NVIDIA H200 with torch 2.11.0 and CUDA 13.0
(results/performance_gpu.json, results/performance_agreement.json).
"""

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from shutil import which
from typing import Any

import torch
from torch import Tensor

from fedwatt.engine import plain
from fedwatt.engine.batches import Batches
from fedwatt.engine.job import Job
from fedwatt.engine.kernels.mlp_gpu import gpu_round
from fedwatt.engine.pool import Pool
from fedwatt.engine.step import (
    Batch,
    explored_gradient,
    final,
    first_rows,
    measured,
    move,
    present_and_previous,
    shaped_gradient,
)
from fedwatt.methods.rule import LocalRule, Rows, composition, lifted, numbers

KEPT = 12  # recordings kept for a pool, the last used; all eleven methods of a run fit

SLAB = 64
"""Rows that a deterministic job works on at a time, empty ones included. Five seeds of a few
participants fit into one, and a GPU takes little longer for 64 models than for 16."""

_recordings: weakref.WeakKeyDictionary[Pool, OrderedDict[Hashable, "Recording"]] = (
    weakref.WeakKeyDictionary()
)
_unrecordable: set[Hashable] = set()
"""Keys of jobs whose rules cannot be recorded; their vehicles are trained one after the other."""


def train(job: Job) -> Tensor:
    """Return Δ_k [P, D] of a stack on a GPU."""
    round_kernel = gpu_round(job)
    if round_kernel is not None:
        return round_kernel(job)
    if not job.deterministic:
        return _recorded(job)
    firsts = range(0, len(job.steps), SLAB)
    return torch.cat([_recorded(job.part(slice(first, first + SLAB))) for first in firsts])


def _recorded(job: Job) -> Tensor:
    """Train by the recording that fits the job; return Δ_k [P, D]."""
    key = recording_key(job)
    if key in _unrecordable:
        return plain.train(job)
    recordings = _recordings.setdefault(job.batches.pool, OrderedDict())
    recording = recordings.pop(key, None)
    if recording is None or not recording.holds(job):
        recording = Recording(job)
    recordings[key] = recording
    while len(recordings) > KEPT:
        recordings.popitem(last=False)
    try:
        return recording.train(job)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError):
        # A rule that decides by the value of a number cannot take a column of them. Vehicle by
        # vehicle it can, and what failed for another reason fails there, too.
        deltas = plain.train(job)
        _unrecordable.add(key)
        del recordings[key]
        return deltas


def recording_key(job: Job) -> Hashable:
    """Return the key that jobs of one recording share: everything but rows, steps and numbers."""
    return (
        composition(job.rules),
        # A number may decide what is planned, as the strength of the spectral gate does.
        tuple(tuple((name, rows.shape[1:]) for name, rows in plan.items()) for plan in job.plans),
        job.model,
        job.loss,
        job.batches.size,
        torch.get_float32_matmul_precision(),
        job.deterministic,
        job.path is None,
    )


class Recording:
    """The buffers of a stack and the graphs that work on them."""

    def __init__(self, job: Job) -> None:
        tensors = job.batches.tensors
        rows = SLAB if job.deterministic else len(job.anchor)
        steps = 1 << (len(tensors[0]) - 1).bit_length()

        def buffer(values: Tensor) -> Tensor:
            return values.new_zeros((rows, *values.shape[1:]))

        self.columns = [
            {name: job.anchor.new_zeros((rows, 1)) for name in numbers(rule)} for rule in job.rules
        ]
        pairs = zip(job.rules, self.columns, strict=True)
        self.rules = tuple(lifted(rule, rule_numbers) for rule, rule_numbers in pairs)
        self.plans = tuple(
            {n: buffer(values) for n, values in plan.items() if values.device == job.anchor.device}
            for plan in job.plans
        )
        self.model = job.model
        self.loss = job.loss
        self.anchor = buffer(job.anchor)
        self.learning_rate = job.anchor.new_zeros((rows, 1))
        self.weights = buffer(job.anchor)
        self.previous = buffer(job.anchor) if job.looks_back else None
        self.step = torch.zeros(1, dtype=torch.int64, device=job.anchor.device)
        self.ends = self.step.new_zeros((rows, 1)) if job.deterministic else None
        """H_k of each row of a slab; None: rows that are done leave the stack."""
        self.batches = [values.new_zeros((steps, rows, *values.shape[2:])) for values in tensors]
        self.graphs: dict[tuple[int, int, bool], torch.cuda.CUDAGraph | None] = {}
        self.waits = False
        """Whether a rule reads numbers off the GPU, so that its steps cannot be recorded."""
        self.memory = torch.cuda.graph_pool_handle()
        self.path = None if job.path is None else buffer(job.path)
        self.move = _compiled() if can_compile() and _has_work(job.rules) else move

    def holds(self, job: Job) -> bool:
        """Return whether a round of as many rows and steps fits into the buffers."""
        return len(job.steps) <= len(self.weights) and job.steps[0] <= len(self.batches[0])

    def train(self, job: Job) -> Tensor:
        """Fill the buffers and take the steps."""
        self._fill(job)
        rows = len(job.steps)
        if self.ends is not None:
            self._take_slab(job)
            return self._moved(job)
        # What decides on the kind of a step is read once, before the GPU has work to wait for.
        shaping = [
            (rule, {name: values.cpu() for name, values in plan.items() if values.numel() == rows})
            for rule, plan in zip(job.rules, job.plans, strict=True)
            if rule.shapes_loss
        ]
        active = rows
        shaped = _shaped(shaping, rows)
        for step in range(job.steps[0]):
            if job.steps[active - 1] <= step:
                while job.steps[active - 1] <= step:
                    active -= 1
                shaped = _shaped(shaping, active)
            kind = step if self.previous is not None else 2
            self._take(job.batches.pool, active, kind, shaped)
        return self._moved(job)

    def _take_slab(self, job: Job) -> None:
        """Take all steps of a slab with all of its rows.

        Whether rules have a say in the loss is not asked of the rows, lest it depend on others.
        """
        shaped = any(rule.shapes_loss for rule in job.rules)
        for step in range(job.steps[0]):
            kind = step if self.previous is not None else 2
            self._take(job.batches.pool, SLAB, kind, shaped)

    def _moved(self, job: Job) -> Tensor:
        """Return Δ_k [P, D] after the last step."""
        rows = len(job.steps)
        previous = self.previous[:rows] if self.previous is not None else None
        if job.path is not None and self.path is not None:
            job.path.add_(self.path[:rows])
        return final(self.weights[:rows], previous, job.steps) - self.anchor[:rows]

    def _fill(self, job: Job) -> None:
        rows = len(job.steps)
        steps = job.steps[0]
        self.step.zero_()
        if self.path is not None:
            self.path.zero_()
        self.anchor[:rows] = job.anchor
        self.weights[:rows] = job.anchor
        self.learning_rate[:rows] = job.learning_rate
        for rule, columns in zip(job.rules, self.columns, strict=True):
            for name, value in numbers(rule).items():
                columns[name][:rows] = value
        for buffers, plan in zip(self.plans, job.plans, strict=True):
            for name, buffer in buffers.items():
                buffer[:rows] = plan[name]
        for buffer, values in zip(self.batches, job.batches.tensors, strict=True):
            buffer[:steps, :rows] = values
        if self.ends is not None:
            self.ends.zero_()
            self.ends[:rows, 0] = torch.tensor(job.steps)

    def _take(self, pool: Pool, active: int, step: int, shaped: bool) -> None:
        """Take one step; recordings differ for the first two and for even and odd later ones."""
        kind = (active, step if step < 2 else 2 + step % 2, shaped)
        if kind not in self.graphs or self.waits:
            self.graphs[kind] = None
            self._work(pool, *kind)
            return
        graph = self.graphs[kind]
        if graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.memory):
                self._work(pool, *kind)
            self.graphs[kind] = graph
        graph.replay()

    def _work(self, pool: Pool, active: int, step: int, shaped: bool) -> None:
        """Queue the kernels of a step of the first `active` rows.

        The pool is not kept: recordings live as long as it does, and no longer.
        """
        starts, labels, share = (
            values.index_select(0, self.step)[0, :active] for values in self.batches
        )
        learning_rate = self.learning_rate
        if self.ends is not None:
            learning_rate = torch.where(self.step < self.ends, learning_rate, 0.0)
        inputs = (self.rules, self.plans, self.model, self.loss, self.anchor, learning_rate)
        job = Job(*inputs, Batches(pool, (), ())).part(slice(0, active))
        here, before = present_and_previous(self.weights, self.previous, step)
        here, before = here[:active], before[:active] if before is not None else None
        windows = pool.gather(starts)
        if job.explores:
            gradient = self._explored(job, here, (windows, labels, share), shaped)
        elif shaped:
            gradient = shaped_gradient(job, here, (windows, labels, share))
        else:
            gradient = job.model.gradient(here, windows, labels, share, job.loss)
        terms = (job.rules, job.plans, gradient, here, before, job.anchor, job.learning_rate)
        with measured(None if self.path is None else self.path[:active], here, before):
            self.move(*terms, first=step == 0)
        self.step.add_(1)

    def _explored(self, job: Job, here: Tensor, batch: Batch, shaped: bool) -> Tensor:
        """Return `explored_gradient`; raise RuntimeError where a rule reads a number back from the
        GPU.
        """
        if self.waits or torch.cuda.is_current_stream_capturing():
            return explored_gradient(job, here, batch, shaped=shaped)
        try:
            with _no_waiting():
                return explored_gradient(job, here, batch, shaped=shaped)
        except RuntimeError:  # a rule that looks at numbers is not to be recorded
            self.waits = True
        return explored_gradient(job, here, batch, shaped=shaped)


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Raise RuntimeError where code waits for the GPU."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _shaped(shaping: Sequence[tuple[LocalRule, Rows]], active: int) -> bool:
    """Return whether any rule changes the loss of the first `active` vehicles."""
    return any(rule.shapes(first_rows(plan, active)) for rule, plan in shaping)


def _has_work(rules: Sequence[LocalRule]) -> bool:
    """Return whether there is anything to fuse: some rule changes the step."""
    return any(
        type(rule).gradient is not LocalRule.gradient
        or type(rule).direction is not LocalRule.direction
        for rule in rules
    )


def can_compile() -> bool:
    """Return whether element-wise work can be made into one kernel: that takes Triton and a C
    compiler.
    """
    return find_spec("triton") is not None and which("cc") is not None


def _compiled() -> Any:
    """Compile `move` to one kernel over [A, D] for any A."""
    # All compositions of rules share the code of `move`, and each is a compilation of its own.
    patched = torch._dynamo.config.patch(recompile_limit=1000)
    compiled = patched(torch.compile(partial(move), dynamic=True, fullgraph=True))

    def fused(
        rules: Sequence[LocalRule], plans: Sequence[Rows], *tensors: Tensor, first: bool
    ) -> None:
        # D is the same in every call; a kernel that knows it need not divide to find its row.
        for tensor in (*tensors, *(values for plan in plans for values in plan.values())):
            if tensor is not None and tensor.dim() == 2:
                torch._dynamo.mark_static(tensor, 1)
        compiled(rules, plans, *tensors, first=first)

    return fused
