"""A step's element-wise work in one pass, where a C compiler is installed.

The pull, the power and the step itself are some ten passes of torch over the weights; on a
processor that is most of what a method costs more than FedAvg. Rules may therefore say what they do
to one weight in C, too (`LocalRule.in_c`). The statements of a method's rules are put into one loop
and compiled when they are first needed (`native`). Where there is no compiler, in float64, or where
a rule has no C, torch does the work.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from fedwatt.engine.job import Job
from fedwatt.engine.kernels.c_compiler import compiled
from fedwatt.methods.rule import InC, LocalRule, Rows
from fedwatt.models.model import speaks_c

PRELUDE: Final = Path(__file__).with_suffix(".c")

STEP: Final = """
/* Weights `begin` to `end`; `gradient` is that of the first of them and those after it. */
static void {name}_part(const float *restrict gradient, const float *restrict weights,
                        float *restrict result, const float *restrict anchors,
                        const float *restrict number, const float *const *restrict tensors,
                        int64_t begin, int64_t end) {{
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {{
        float g = gradient[i - begin];
        const float before = result[i], w = {weights}[i], anchor = anchors[i];
        {statements}
        result[i] = w - number[0] * g;
    }}
}}

void {name}(const float *gradients, const float *weights, float *result, const float *anchors,
            const float *numbers, const float *const *tensors, int64_t rows, int64_t columns) {{
    for (int64_t row = 0, begin = 0; row < rows; row++, begin += columns)
        {name}_part(gradients + begin, weights, result, anchors, numbers + row * NUMBERS, tensors,
                    begin, begin + columns);
}}
"""


class Fused:
    """w_{h+1} of a stack of A vehicles in one pass."""

    def __init__(
        self,
        functions: tuple[Any, Any],
        numbers: Tensor,
        tensors: Sequence[Tensor],
        anchor: Tensor,
        cost: str,
    ) -> None:
        self.functions, self.numbers, self.anchor = functions, numbers, anchor
        self.tensors, self.pointers = tensors, pointers(tensors)
        self.cost = cost
        """What its time is booked under."""

    def __call__(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, *, first: bool
    ) -> None:
        """As `move`: the result goes to `previous`, or to `weights` where no rule looks back."""
        rows, columns = weights.shape
        result = weights if previous is None else previous
        own = (gradient, weights, result, self.anchor, self.numbers)
        step = self.functions[0 if first else 1]
        step(*(tensor.data_ptr() for tensor in own), self.pointers, rows, columns)


def fused_step(job: Job) -> Fused | None:
    """The step of a job in one pass, or None if it has to be left to torch."""
    spoken = in_c(job.rules, job.plans, job.anchor)
    if spoken is None or not any(said.gradient or said.direction for said in spoken):
        return None
    library = compiled(step_source(job.rules, spoken))
    if library is None:
        return None
    functions = (library.first, library.later)
    for function in functions:
        function.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_int64] * 2
        function.restype = None
    numbers = columns_of(spoken, job.rate, job.anchor)
    tensors = tensors_of(spoken, job.anchor)
    return Fused(functions, numbers, tensors, job.anchor, cost_of(job.rules))


def tensors_of(spoken: Sequence[InC], anchor: Tensor) -> list[Tensor]:
    """All tensors of the rules, each [A, D] of `anchor`'s type."""
    tensors = (values for said in spoken for values in said.tensors.values())
    return [values.to(anchor.dtype).expand_as(anchor).contiguous() for values in tensors]


def pointers(tensors: Sequence[Tensor]) -> Any:
    """Where the tensors are, for C; the tensors themselves must be kept."""
    return (ctypes.c_void_p * max(1, len(tensors)))(*(tensor.data_ptr() for tensor in tensors))


def in_c(rules: Sequence[LocalRule], plans: Sequence[Rows], anchor: Tensor) -> list[InC] | None:
    """What the rules do to one weight, or None where one of them, or the stack, has no C."""
    if anchor.dtype != torch.float32 or anchor.is_cuda:
        return None
    if not all(speaks_c(rule, "gradient", "direction") for rule in rules):
        return None
    return [rule.in_c(plan) for rule, plan in zip(rules, plans, strict=True)]


def columns_of(spoken: Sequence[InC], rate: float | Tensor, anchor: Tensor) -> Tensor:
    """The rate and all numbers of the rules, one row for each of `anchor` [A, D]."""
    columns = [rate, *(value for said in spoken for value in said.numbers.values())]
    numbers = anchor.new_empty((len(anchor), len(columns)))
    for place, value in enumerate(columns):
        numbers[:, place] = value.flatten() if isinstance(value, Tensor) else value
    return numbers


def cost_of(rules: Sequence[LocalRule]) -> str:
    """What the time of a step of these rules is booked under."""
    costs = (rule.step_cost for rule in rules if rule.step_cost != LocalRule.step_cost)
    return next(costs, LocalRule.step_cost)


def step_source(rules: Sequence[LocalRule], spoken: Sequence[InC]) -> str:
    """The first step of a round and all later ones in C."""
    gradients, directions, at_once = [], [], []
    count, place = 1, 0
    for rule, said in zip(rules, spoken, strict=True):
        names = [f"{name} = number[{count + i}]" for i, name in enumerate(said.numbers)]
        names += [f"{name} = tensors[{place + i}][i]" for i, name in enumerate(said.tensors)]
        count, place = count + len(said.numbers), place + len(said.tensors)
        known = "".join(f"const float {name}; " for name in names)
        gradients += [f"{{ {known}{said.gradient} }}"] * bool(said.gradient)
        own = [f"{{ {known}{said.direction} }}"] * bool(said.direction)
        directions += own
        at_once += [] if rule.looks_back else own
    # Where nobody looks back the weights are changed in place and read from there.
    looks_back = any(rule.looks_back for rule in rules)
    read = "weights" if looks_back else "result"
    facts = f"enum {{ NUMBERS = {count}, TENSORS = {place}, LOOKS_BACK = {int(looks_back)} }};\n"
    steps = (
        STEP.format(name=name, statements="\n        ".join(statements), weights=read)
        for name, statements in (("first", gradients + at_once), ("later", gradients + directions))
    )
    return "".join((PRELUDE.read_text(), facts, *steps))
