"""A step's element-wise work in one pass over the weights, where a C compiler is installed.

The pull, the power and the step itself are some ten passes of torch over the weights; on a
processor that is most of what a method costs more than FedAvg. The C is generated from the rules'
own torch hooks (`trace`), when a composition of rules is first needed. The numbers of rules are
inputs of the C, so that another α or rate compiles nothing. Where there is no compiler, in float64,
or where a rule cannot be traced, torch does the work; a rule that cannot be traced is named once.
"""

import ctypes
import re
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import torch
from torch import Tensor

from fedwatt.engine.job import Job
from fedwatt.engine.kernels.c_compiler import SlowerInTorch, compiled
from fedwatt.engine.kernels.exploring import FOUND, points_as_c, traced_points, vectors
from fedwatt.engine.kernels.trace import COLUMNS, ROWS, Statements, Untraceable, statements
from fedwatt.engine.step import direction
from fedwatt.errors import SettingError
from fedwatt.methods.rule import LocalRule, Rows, composition, lifted, numbers

PRELUDE = Path(__file__).with_name("trace.c")

SEAM = "\n/* What stands for $loops, once or more: */\n"
STEP, LOOP = map(Template, Path(__file__).with_name("fused_step.c").read_text("utf-8").split(SEAM))
"""C with places for what is traced: of a step, and of its loop over weights."""

Source = tuple[int, str, str]
"""Where a step finds an input: which rule, "rule" or "plan", and its name there."""


@dataclass(frozen=True)
class CStep:
    """The step of a composition of rules as C, and where its inputs come from."""

    source: str
    first: Statements  # the first step of a round, which has no previous weights
    later: Statements  # all others
    numbers: tuple[Source, ...]  # behind the rate, in this order; one a row
    tensors: tuple[Source, ...]  # in this order; one entry for each weight
    looks_back: bool  # whether the weights before the last step are read
    vectors: int | None = 0
    """Memory for points and gradients of rules that explore, in multiples of the weights; None
    where they do so in a way that has no C."""

    def columns(self, job: Job) -> Tensor:
        """Return the rate and all numbers, [P, count], float64."""
        values = [job.learning_rate, *(_value(job, source) for source in self.numbers)]
        shape = (len(job.anchor), len(values))
        device = job.anchor.device
        columns = torch.empty(shape, dtype=torch.float64, device=device)
        for place, value in enumerate(values):
            columns[:, place] = value.flatten() if isinstance(value, Tensor) else value
        return columns

    def weights(self, job: Job) -> list[Tensor]:
        """Return the tensors, each [P, D] of the anchor's type."""
        values = (_value(job, source) for source in self.tensors)
        return [torch.as_tensor(v).to(job.anchor.dtype).contiguous() for v in values]


def c_step(job: Job) -> CStep | None:
    """Return the step of a job's rules as C; None where it has to be left to torch."""
    if job.anchor.dtype != torch.float32 or job.anchor.is_cuda:
        return None
    return traced_step(job)


def traced_step(job: Job) -> CStep | None:
    """Return the step of a job's rules as C, whatever it trains in; None where it cannot be traced.

    What can be traced treats every weight alike, whatever its place.
    """
    plans = [{name: _sample(rows, job.anchor) for name, rows in plan.items()} for plan in job.plans]
    entries = tuple(
        tuple((name, rows.shape, rows.dtype) for name, rows in plan.items()) for plan in plans
    )
    key = (composition(job.rules), entries)
    if key not in _steps:
        _steps[key] = _traced(job.rules, plans)
    return _steps[key]


_steps: dict[Hashable, CStep | None] = {}  # by composition of rules and kind of plans


def _traced(rules: Sequence[LocalRule], plans: Sequence[Rows]) -> CStep | None:
    try:
        return _generated(rules, plans)
    except Untraceable as problem:
        names = " + ".join(type(rule).__name__ for rule in rules)
        if _mixes(rules, plans):
            raise SettingError(
                f"A vehicle's step by {names} depends on the others in its stack: sums, means and "
                "norms are over the weights of one vehicle, dim=-1 with keepdim=True."
            ) from problem
        warnings.warn(
            f"The steps of {names} run in torch, which is slower than C: {problem}.",
            SlowerInTorch,
            stacklevel=2,
        )
        return None


def _mixes(rules: Sequence[LocalRule], plans: Sequence[Rows]) -> bool:
    """Return whether a row of a trial stack moves otherwise than it does alone."""
    terms = [torch.rand(ROWS, COLUMNS) for _ in range(4)]

    def moved(rows: slice) -> Tensor:
        row_plans = [{name: entry[rows] for name, entry in plan.items()} for plan in plans]
        return direction(rules, row_plans, *(term[rows] for term in terms))

    try:
        together = moved(slice(None))
        alone = [moved(slice(k, k + 1)) for k in range(ROWS)]
        return not torch.allclose(together, torch.cat(alone), rtol=1e-4, equal_nan=True)
    except Exception:  # it needs more than a trial has, or fails in training, too
        return False


def _generated(rules: Sequence[LocalRule], plans: Sequence[Rows]) -> CStep:
    """Return the C of a round's first step, which has no previous weights, and of later steps.

    The `plans` are samples of what the rules are given, for ROWS models of COLUMNS weights.
    """
    names = ("gradient", "weight", "previous", "anchor", *FOUND)
    inputs: dict[str, Tensor] = {name: torch.rand(ROWS, COLUMNS) for name in names}
    inputs["rate"] = torch.rand(ROWS, 1)
    sources: dict[str, Source] = {}
    lifted_rules = []
    sampled_plans = []
    for place, (rule, plan) in enumerate(zip(rules, plans, strict=True)):
        columns = {name: torch.rand(ROWS, 1) for name in numbers(rule)}
        for where, values in (("rule", columns), ("plan", plan)):
            for name, value in values.items():
                if value.shape[1:] in ((), (1,), (COLUMNS,)):
                    sources[f"{where}{place}_{name}"] = (place, where, name)
                    inputs[f"{where}{place}_{name}"] = value
        lifted_rules.append(lifted(rule, columns))
        sampled_plans.append(plan)

    def step(first: bool) -> Statements:
        def function(of: dict[str, Tensor]) -> Tensor:
            previous = None if first else of["previous"]
            terms = (of["gradient"], of["weight"], previous, of["anchor"])
            return of["weight"] - of["rate"] * direction(lifted_rules, sampled_plans, *terms)

        return statements(function, inputs)

    steps = {"first": step(True), "later": step(False)}
    points = _points(lifted_rules, sampled_plans, inputs)
    traced = (*steps.values(), *(points or ()))
    text = " ".join(
        line for traced_step in traced for line in (*traced_step.numbers, *traced_step.weights)
    )
    used = {name: source for name, source in sources.items() if re.search(rf"\b{name}\b", text)}
    by_row = [name for name in used if inputs[name].shape[1:] != (COLUMNS,)]
    by_weight = [name for name in used if name not in by_row]
    looks_back = any(rule.looks_back for rule in rules)
    constants = _constants(1 + len(by_row), len(by_weight), looks_back, points or ())
    declarations = ["const double rate = number[0];"]
    declarations += [
        f"const double {name} = number[{i}];" for i, name in enumerate(by_row, start=1)
    ]
    entry_lines = [f"const float {name} = tensors[{i}][i];" for i, name in enumerate(by_weight)]
    parts = _step_functions(steps, declarations, entry_lines, looks_back)
    parts.append(points_as_c(points or (), declarations, entry_lines))
    return CStep(
        "".join((PRELUDE.read_text("utf-8"), constants, *parts)),
        steps["first"],
        steps["later"],
        tuple(used[name] for name in by_row),
        tuple(used[name] for name in by_weight),
        looks_back,
        None if points is None else vectors(points),
    )


def _step_functions(
    steps: Mapping[str, Statements],
    declarations: Sequence[str],
    entries: Sequence[str],
    looks_back: bool,
) -> list[str]:
    """Return the C functions of the first and of the later steps."""
    # Where no rule looks back, the weights are changed in place and read from there.
    read = "weights" if looks_back else "result"
    return [
        STEP.substitute(
            name=name,
            numbers="\n    ".join((*declarations, *statements_of_step.numbers)),
            loops=_loops(statements_of_step, entries, read),
        )
        for name, statements_of_step in steps.items()
    ]


def _constants(numbers: int, tensors: int, back: bool, points: Sequence[Statements]) -> str:
    """Return the constants that C is compiled with."""
    return (
        f"enum {{ NUMBERS = {numbers}, TENSORS = {tensors}, LOOKS_BACK = {int(back)}, "
        f"GRADIENTS = {len(points)}, VECTORS = {vectors(points)} }};\n"
    )


def _points(
    rules: Sequence[LocalRule], plans: Sequence[Rows], inputs: Mapping[str, Tensor]
) -> tuple[Statements, ...] | None:
    """Return the points of a step's gradients; None where C cannot express them."""
    try:
        return traced_points(rules, plans, inputs)
    except Untraceable:
        return None


def _loops(statements: Statements, entries: Sequence[str], read: str) -> str:
    """Return the loop over weights, and a quicker one for where the numbers of a row allow it."""
    lines = "\n        ".join((*entries, *statements.weights))
    loop = LOOP.substitute(weights=lines, result=statements.result, read=read)
    if not statements.quick:
        return loop
    quick = loop
    for _, function, quicker in statements.quick:
        quick = quick.replace(f"= {function}", f"= {quicker}")  # whole calls: two may be alike
    conditions = " && ".join(condition for condition, *_ in statements.quick)
    return f"if ({conditions}) {{\n{quick}    }} else {{\n{loop}    }}"


class FusedStep:
    """w_{h+1} of a stack of A vehicles in one pass."""

    def __init__(
        self, functions: tuple[Any, Any], anchor: Tensor, numbers: Tensor, tensors: list[Tensor]
    ) -> None:
        self.functions = functions
        self.anchor = anchor.contiguous()
        self.numbers = numbers
        self.tensors = tensors
        self.pointers = pointers(tensors)

    def __call__(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, *, first: bool
    ) -> None:
        """Take the step of `move`: into `previous`, or into `weights` where no rule looks back."""
        rows, columns = weights.shape
        result = weights if previous is None else previous
        tensors = (gradient, weights, result, self.anchor, self.numbers)
        step = self.functions[0 if first else 1]
        step(*(tensor.data_ptr() for tensor in tensors), self.pointers, rows, columns)


def fused_step(job: Job) -> FusedStep | None:
    """Return the step of a job in one pass, or None if it has to be left to torch."""
    step = c_step(job) if job.rules else None
    library = compiled(step.source) if step is not None else None
    if step is None or library is None:
        return None
    functions = (library.first, library.later)
    for function in functions:
        function.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_int64] * 2
        function.restype = None
    return FusedStep(functions, job.anchor, step.columns(job), step.weights(job))


def pointers(tensors: Sequence[Tensor]) -> Any:
    """Return the tensors' addresses for C; the caller must hold on to the tensors."""
    return (ctypes.c_void_p * max(1, len(tensors)))(*(tensor.data_ptr() for tensor in tensors))


def step_timed_as(rules: Sequence[LocalRule]) -> str:
    """Return the label under which the time of a step of these rules is recorded."""
    costs = (rule.step_timed_as for rule in rules if rule.step_timed_as != LocalRule.step_timed_as)
    return next(costs, LocalRule.step_timed_as)


def _value(job: Job, source: Source) -> float | Tensor:
    place, where, name = source
    if where == "plan":
        return job.plans[place][name]
    value: float | Tensor = numbers(job.rules[place])[name]
    return value


def _sample(rows: Tensor, anchor: Tensor) -> Tensor:
    """Return a plan's entry for ROWS models of COLUMNS weights.

    What has the weights' type is sampled in float32, the type that C computes in.
    """
    by_weight = rows.shape[1:] == anchor.shape[1:]
    shape = (ROWS, COLUMNS) if by_weight else (ROWS, *rows.shape[1:])
    return torch.ones(shape, dtype=torch.float32 if rows.dtype == anchor.dtype else rows.dtype)
