"""A step's element-wise work in one pass, where a C compiler is installed.

The pull, the power and the step itself are some ten passes of torch over the weights; on a
processor that is most of what a method costs more than FedAvg. Rules may therefore say what they do
to one weight in C, too (`LocalRule.in_c`). The statements of a method's rules are put into one loop
and compiled when they are first needed, which takes a fraction of a second. Where there is no
compiler (CC names it, "cc" if unset), in float64, or where a rule has no C, torch does the work.
"""

import ctypes
import os
import shlex
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from torch import Tensor

from fedwatt.methods.rule import InC, LocalRule, Rows

FLAGS: Final = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
WIDE: Final = "-mprefer-vector-width=512"
"""Twice as fast where it is known; other processors' compilers refuse it."""

PRELUDE: Final = Path(__file__).with_suffix(".c")

STEP: Final = """
void {name}(const float *restrict gradients, const float *restrict weights,
            float *restrict result, const float *restrict anchors,
            const float *restrict numbers, int64_t rows, int64_t columns) {{
    for (int64_t row = 0; row < rows; row++) {{
        const float *number = numbers + row * {count};
        for (int64_t i = row * columns; i < (row + 1) * columns; i++) {{
            float g = gradients[i];
            const float before = result[i], w = {weights}[i], anchor = anchors[i];
            {statements}
            result[i] = w - number[0] * g;
        }}
    }}
}}
"""


class Fused:
    """w_{h+1} of a stack of A vehicles in one pass."""

    def __init__(self, functions: tuple[Any, Any], numbers: Tensor, anchor: Tensor, cost: str):
        self.functions, self.numbers, self.anchor = functions, numbers, anchor
        self.cost = cost
        """What its time is booked under."""

    def __call__(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, *, first: bool
    ) -> None:
        """As `move`: the result goes to `previous`, or to `weights` where no rule looks back."""
        rows, columns = weights.shape
        result = weights if previous is None else previous
        tensors = (gradient, weights, result, self.anchor, self.numbers)
        self.functions[0 if first else 1](*(t.data_ptr() for t in tensors), rows, columns)


def fused_step(
    rules: Sequence[LocalRule], plans: Sequence[Rows], rate: float | Tensor, anchor: Tensor
) -> Fused | None:
    """The step of these rules at `anchor` [A, D], or None if it has to be left to torch."""
    if anchor.dtype != torch.float32 or anchor.is_cuda or not all(_speaks_c(r) for r in rules):
        return None
    spoken = [rule.in_c(plan) for rule, plan in zip(rules, plans, strict=True)]
    if not any(said.gradient or said.direction for said in spoken):
        return None
    source = _source(spoken, looks_back=any(rule.looks_back for rule in rules))
    functions = _compiled(source)
    if functions is None:
        return None
    columns = [rate, *(value for said in spoken for value in said.numbers.values())]
    numbers = anchor.new_empty((len(anchor), len(columns)))
    for place, value in enumerate(columns):
        numbers[:, place] = value.flatten() if isinstance(value, Tensor) else value
    costs = (rule.step_cost for rule in rules if rule.step_cost != LocalRule.step_cost)
    return Fused(functions, numbers, anchor, next(costs, LocalRule.step_cost))


def _speaks_c(rule: LocalRule) -> bool:
    """Whether the C of a rule is that of its hooks and not of a class that it departs from."""
    order = type(rule).__mro__

    def place(name: str) -> int:
        return next(i for i, kind in enumerate(order) if name in vars(kind))

    return place("in_c") <= min(place("gradient"), place("direction"))


def _source(spoken: Sequence[InC], *, looks_back: bool) -> str:
    """The first step of a round and all later ones in C."""
    gradients, directions, count = [], [], 1
    for said in spoken:
        names = "".join(
            f"const float {name} = number[{count + i}]; " for i, name in enumerate(said.numbers)
        )
        count += len(said.numbers)
        gradients += [f"{{ {names}{said.gradient} }}"] * bool(said.gradient)
        directions += [f"{{ {names}{said.direction} }}"] * bool(said.direction)
    # Where nobody looks back the weights are changed in place and read from there.
    parts = {"count": count, "weights": "weights" if looks_back else "result"}
    return PRELUDE.read_text() + "".join(
        STEP.format(name=name, statements="\n            ".join(statements), **parts)
        for name, statements in (("first", gradients), ("later", gradients + directions))
    )


@cache
def _compiled(source: str) -> tuple[Any, Any] | None:
    """The two functions of `source`; None where they cannot be compiled."""
    compiler, *options = shlex.split(os.environ.get("CC", "cc")) or [""]
    if which(compiler) is None:
        return None
    try:
        return _loaded(source, [compiler, *options])
    except OSError:  # a temporary folder that cannot be written to, or that nothing may run from
        return None


def _loaded(source: str, compiler: Sequence[str]) -> tuple[Any, Any] | None:
    with TemporaryDirectory(prefix="fedwatt-") as folder:
        code, library = Path(folder, "step.c"), Path(folder, "step.so")
        code.write_text(source)
        for flags in ((*FLAGS, WIDE), FLAGS):
            command = [*compiler, *flags, str(code), "-o", str(library), "-lm"]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                break
        else:
            return None
        loaded = ctypes.CDLL(str(library))  # stays loaded when the file is gone
    for function in (loaded.first, loaded.later):
        function.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int64] * 2
        function.restype = None
    return loaded.first, loaded.later
