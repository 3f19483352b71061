"""Local steps on a GPU, recorded once and replayed: no Python and no waiting between steps.

A step of small models is some twenty short kernels, and telling a GPU of each takes longer than
running it. A CUDA graph tells it of all of them at once, but repeats the same work on the same
memory. So a stack's weights, plans and batches lie in buffers that stay where they are and are
filled anew in each round, and the number of the step is itself a number on the GPU.

One graph is recorded for each number of vehicles still at work. The first step of a kind is taken
plainly, which lets libraries and compilers prepare, and recorded when it comes again.
"""

import weakref
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import partial
from importlib.util import find_spec
from shutil import which
from typing import Any, Final

import torch
from torch import Tensor

from fedwatt.engine.batches import StackedBatches
from fedwatt.engine.pool import Pool
from fedwatt.federation.local import (
    final,
    first_rows,
    is_shaped,
    move,
    step_gradient,
    turn,
)
from fedwatt.methods.rule import LocalRule, Rows, Start, composition, lifted, numbers

KEPT: Final = 12
"""Recordings kept for a pool, the last used; all eleven methods of a run fit."""

_recordings: weakref.WeakKeyDictionary[Pool, OrderedDict[Hashable, "Recording"]] = (
    weakref.WeakKeyDictionary()
)


def train_recorded(
    rules: Sequence[LocalRule],
    plans: Sequence[Rows],
    start: Start,
    rate: float | Tensor,
    batches: StackedBatches,
    steps: Sequence[int],
) -> Tensor:
    """Δ_k [P, D] of a stack on a GPU, as `train_blocks` has it on a processor."""
    kept = _recordings.setdefault(batches.pool, OrderedDict())
    key = recording_key(rules, plans, start, batches)
    recording = kept.pop(key, None)
    if recording is None or not recording.holds(batches):
        recording = Recording(rules, plans, start, batches)
    kept[key] = recording
    while len(kept) > KEPT:
        kept.popitem(last=False)
    return recording.train(rules, plans, start, rate, batches, steps)


def recording_key(
    rules: Sequence[LocalRule], plans: Sequence[Rows], start: Start, batches: StackedBatches
) -> Hashable:
    """What stacks must share to be replayed by one recording: all but rows, steps and numbers."""
    return (
        composition(rules),
        # A number may decide what is planned, as the strength of the spectral gate does.
        tuple(tuple((name, rows.shape[1:]) for name, rows in plan.items()) for plan in plans),
        start.model,
        start.loss,
        batches.share.shape[-1],
        torch.get_float32_matmul_precision(),
    )


class Recording:
    """The buffers of a stack and the graphs that work on them."""

    def __init__(
        self,
        rules: Sequence[LocalRule],
        plans: Sequence[Rows],
        start: Start,
        batches: StackedBatches,
    ) -> None:
        rows = len(start.anchor)
        steps = 1 << (len(batches.starts) - 1).bit_length()
        self.task = (start.model, start.loss)
        self.anchor, self.weights = torch.empty_like(start.anchor), torch.empty_like(start.anchor)
        looks_back = any(rule.looks_back for rule in rules)
        self.previous = torch.empty_like(start.anchor) if looks_back else None
        self.step = torch.zeros(1, dtype=torch.int64, device=start.anchor.device)
        self.rates = start.anchor.new_empty((rows, 1))
        self.numbers = [
            {name: start.anchor.new_empty((rows, 1)) for name in numbers(rule)} for rule in rules
        ]
        self.rules = tuple(
            lifted(rule, columns) for rule, columns in zip(rules, self.numbers, strict=True)
        )
        self.plans = [
            {name: torch.empty_like(values) for name, values in plan.items() if values.is_cuda}
            for plan in plans
        ]
        self.batches = [
            values.new_zeros((steps, *values.shape[1:]))
            for values in (batches.starts, batches.labels, batches.share)
        ]
        self.graphs: dict[tuple[int, int, bool], torch.cuda.CUDAGraph | None] = {}
        self.memory = torch.cuda.graph_pool_handle()
        self.move = _compiled() if can_compile() and _has_work(rules) else move

    def holds(self, batches: StackedBatches) -> bool:
        """Whether a round of as many rows and steps fits into the buffers."""
        steps, rows = batches.starts.shape[:2]
        return rows <= len(self.anchor) and steps <= len(self.batches[0])

    def train(
        self,
        rules: Sequence[LocalRule],
        plans: Sequence[Rows],
        start: Start,
        rate: float | Tensor,
        batches: StackedBatches,
        steps: Sequence[int],
    ) -> Tensor:
        """Fill the buffers and take the steps."""
        self._fill(rules, plans, start.anchor, rate, batches)
        rows = len(steps)
        # What decides on the kind of a step is read once, before the GPU has work to wait for.
        shaping = [index for index, rule in enumerate(rules) if rule.shapes_loss]
        deciding = [rules[index] for index in shaping]
        known = [
            {name: values.cpu() for name, values in plans[index].items() if values.numel() == rows}
            for index in shaping
        ]
        active, shaped = rows, is_shaped(deciding, known)
        for step in range(steps[0]):
            if steps[active - 1] <= step:
                while steps[active - 1] <= step:
                    active -= 1
                shaped = is_shaped(deciding, [first_rows(plan, active) for plan in known])
            kind = step if self.previous is not None else 2
            self._take(batches.pool, active, kind, shaped)
        previous = self.previous[:rows] if self.previous is not None else None
        return final(self.weights[:rows], previous, steps) - self.anchor[:rows]

    def _fill(
        self,
        rules: Sequence[LocalRule],
        plans: Sequence[Rows],
        anchor: Tensor,
        rate: float | Tensor,
        batches: StackedBatches,
    ) -> None:
        steps, rows = batches.starts.shape[:2]
        self.step.zero_()
        self.anchor[:rows] = anchor
        self.weights[:rows] = anchor
        self.rates[:rows] = rate
        for rule, columns in zip(rules, self.numbers, strict=True):
            for name, value in numbers(rule).items():
                columns[name][:rows] = value
        for buffers, plan in zip(self.plans, plans, strict=True):
            for name, buffer in buffers.items():
                buffer[:rows] = plan[name]
        for buffer, values in zip(
            self.batches, (batches.starts, batches.labels, batches.share), strict=True
        ):
            buffer[:steps, :rows] = values

    def _take(self, pool: Pool, active: int, step: int, shaped: bool) -> None:
        """One step; beyond the first two only whether it is even makes a difference."""
        kind = (active, step if step < 2 else 2 + step % 2, shaped)
        if kind not in self.graphs:
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
        """The work of a step of the first `active` rows.

        The pool is not kept: recordings live as long as it does, and no longer.
        """
        starts, labels, share = (
            values.index_select(0, self.step)[0, :active] for values in self.batches
        )
        plans = [first_rows(plan, active) for plan in self.plans]
        rules = [
            lifted(rule, first_rows(columns, active))
            for rule, columns in zip(self.rules, self.numbers, strict=True)
        ]
        here, before = turn(self.weights, self.previous, step)
        here, anchor = here[:active], self.anchor[:active]
        before = before[:active] if before is not None else None
        batch = (pool.gather(starts), labels, share)
        gradient = step_gradient(rules, plans, self.task, here, anchor, batch, shaped=shaped)
        self.move(
            rules, plans, gradient, here, before, anchor, self.rates[:active], first=step == 0
        )
        self.step.add_(1)


def _has_work(rules: Sequence[LocalRule]) -> bool:
    """Whether there is anything to fuse: some rule changes the step."""
    return any(
        type(rule).gradient is not LocalRule.gradient
        or type(rule).direction is not LocalRule.direction
        for rule in rules
    )


def can_compile() -> bool:
    """Whether element-wise work can be made into one kernel: that takes Triton and a C compiler."""
    return find_spec("triton") is not None and which("cc") is not None


def _compiled() -> Any:
    """`move` as one kernel over [A, D], whatever A is."""
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
