"""Turn torch functions that treat every weight alike into C.

The function runs once on tensors of two rows and three columns while torch reports each operation
that it performs. Each becomes one statement of C. A value is a *number* where it has one entry a
row (computed once a row, in double) and a *weight* where it has one entry for each weight (computed
in the loop over weights, in float). So whatever torch computes, C computes: there is no second copy
of a formula that could fall behind.

Where asked for, a sum over the weights (a norm) is a number, too, computed by a loop of its own.
What cannot be expressed like this (a branch on a value, a number of weights taken from a shape)
raises `Untraceable`: C would have what the trial stack had.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# unlike any other length, so that a shape identifies the kind of a value
ROWS = 2
COLUMNS = 211


class Untraceable(Exception):
    """Names an operation that cannot be expressed for single weights."""


@dataclass(frozen=True)
class Value:
    """A variable of the generated C."""

    name: str
    is_weight: bool

    def __str__(self) -> str:
        """Return the text that stands for it in a statement."""
        return self.name


@dataclass(frozen=True)
class Statements:
    """C that computes `result` from its inputs."""

    numbers: tuple[str, ...]  # once a row, in double
    weights: tuple[str, ...]  # for every weight, in float
    result: str
    quick: tuple[tuple[str, str, str], ...] = ()
    """(condition, function, quicker one) for each power: which one will do where numbers allow."""


SAME = frozenset(
    (
        *("_to_copy", "_unsafe_view", "alias", "clone", "detach", "expand", "lift_fresh"),
        *("select", "slice", "squeeze", "unsqueeze", "view"),
    )
)
"""Operations that leave every value as it is, in a type that holds it."""

READS: dict[Any, str] = dict.fromkeys(
    (Tensor.tolist, Tensor.numpy, Tensor.__array__), "reads values out of a tensor"
) | dict.fromkeys(
    (
        Tensor.shape.__get__,  # type: ignore[attr-defined]
        *(Tensor.size, Tensor.numel, Tensor.nelement, Tensor.__len__, torch.numel),
    ),
    "reads how many weights or vehicles there are",
)
"""Functions that give Python numbers without any operation that torch reports, and what they do."""

TOTALS = ("sum", "linalg_vector_norm")
"""Operations that make one number a row of one for each weight."""

OPERATIONS: dict[str, str] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
"""Torch operation → C with a place for each argument."""


TOTAL = """double {name} = 0.0, {name}_lanes[256] = {{0.0}};
    for (int64_t begin = 0; begin < columns; begin += 256) {{
        const int64_t end = begin + 256 < columns ? begin + 256 : columns;
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {{
            $loads
            {weights}
            {name}_lanes[i - begin] += {term};
        }}
    }}
    for (int lane = 0; lane < 256; lane++) {name} += {name}_lanes[lane];"""
"""A sum over the weights, with places for how inputs are read. Lanes let additions overlap, which
would wait for each other in one chain."""

Term = Callable[[Any], str]


def _sum(term: Term, args: Sequence[Any], kwargs: Mapping[str, Any], sign: str) -> str:
    """Return a ± alpha · b."""
    alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
    scaled = term(args[1]) if alpha == 1 else f"{term(alpha)} * {term(args[1])}"
    return f"{term(args[0])} {sign} {scaled}"


def _clamp(term: Term, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Emit a clamp to two bounds, either of which may be missing; NaN stays."""
    low, high = (*args[1:], None, None)[:2]
    low, high = kwargs.get("min", low), kwargs.get("max", high)
    operand = term(args[0])
    operand = operand if low is None else f"at_least({operand}, {term(low)})"
    return operand if high is None else f"at_most({operand}, {term(high)})"


OTHERS: dict[str, Callable[[Term, Sequence[Any], Mapping[str, Any]], str]] = {
    "add": lambda term, args, kwargs: _sum(term, args, kwargs, "+"),
    "sub": lambda term, args, kwargs: _sum(term, args, kwargs, "-"),
    "rsub": lambda term, args, kwargs: _sum(term, (args[1], args[0], *args[2:]), kwargs, "-"),
    "addcmul": lambda term, args, kwargs: (
        f"{term(args[0])} + {term(kwargs.get('value', 1))} * {term(args[1])} * {term(args[2])}"
    ),
    "addcdiv": lambda term, args, kwargs: (
        f"{term(args[0])} + {term(kwargs.get('value', 1))} * {term(args[1])} / {term(args[2])}"
    ),
    "clamp": _clamp,
    "zeros_like": lambda term, args, kwargs: term(0.0),
    "ones_like": lambda term, args, kwargs: term(1.0),
    "full_like": lambda term, args, kwargs: term(args[1]),
    "full": lambda term, args, kwargs: term(args[1]),
    "scalar_tensor": lambda term, args, kwargs: term(args[0]),
}
"""Operations with options, or none of whose arguments count."""


def statements(
    function: Callable[..., Tensor], inputs: Mapping[str, Tensor], *, sums: bool = False
) -> Statements:
    """Return C for `function(inputs)`, with the names of `inputs`, which have two rows each.

    With `sums`, those over all weights become numbers, by loops in which "$loads" stands for the
    reading of inputs.

    >>> weights = {"w": torch.zeros(ROWS, COLUMNS), "rate": torch.zeros(ROWS, 1)}
    >>> found = statements(lambda of: of["w"] - (1 - of["rate"]) * of["w"], weights)
    >>> found.numbers, found.weights
    (('const double t0 = 1.0 - rate;',),
     ('const float t1 = (float)t0 * w;', 'const float t2 = w - t1;'))
    """
    recorder = _Recorder(inputs, sums)
    try:
        with recorder, _Reading():
            result = function(inputs)
    except Untraceable:
        raise
    except Exception as problem:  # whatever a hook raises here, it raises in torch, too
        words = f"{type(problem).__name__}: {problem}".split("\n", 1)[0]
        raise Untraceable(
            f"on a trial stack of {ROWS} vehicles with {COLUMNS} weights each it raised {words}"
        ) from problem
    value = recorder.value(result, weight=True)
    lines = tuple(recorder.numbers), tuple(recorder.weights)
    return Statements(*lines, value, tuple(recorder.quick))


class _Reading(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in READS:
            raise Untraceable(f"it {READS[func]}")
        return func(*args, **(kwargs or {}))


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, inputs: Mapping[str, Tensor], sums: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sums = sums
        self.count = 0
        self.numbers: list[str] = []
        self.weights: list[str] = []
        self.values_of: dict[tuple[Any, ...], Value] = {}
        self.logarithms: dict[str, str] = {}
        """x of each weight that is log x."""
        self.scaled: dict[str, tuple[str, str]] = {}
        """(x, y) of each weight that is y · log x for a number y."""
        self.sizes: set[str] = set()
        """Weights that are not below 0."""
        self.positive: dict[str, str] = {}
        """The number that was added to a size, for each weight that is one."""
        self.quick: list[tuple[str, str, str]] = []
        self.alive: list[Tensor] = []
        """Kept, so that no other tensor gets the memory of one that is known."""
        for name, tensor in inputs.items():
            self._learn(tensor, Value(name, _is_weight(tensor)))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: True would import torch's compiler, which takes seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        in_place = name.endswith("_") and name not in SAME
        bare = name.rstrip("_") if in_place else name
        terms = [*args, *(kwargs or {}).values()]
        # Taken before the operation runs, which may write over what it reads.
        before = {
            _key(term): self.values_of.get(_key(term)) for term in terms if isinstance(term, Tensor)
        }
        out = func(*args, **(kwargs or {}))
        if not isinstance(out, Tensor):
            raise Untraceable(f"torch's '{bare}' makes no tensor of one entry for each weight")
        if bare in SAME:
            source = before[_key(args[0])]
            if source is None:
                raise Untraceable(f"torch's '{bare}' reads a tensor that no step is given")
            if out.numel() != args[0].numel() and bare != "expand":
                raise Untraceable(f"torch's '{bare}' takes a part of a tensor")
            kinds = (args[0].dtype, torch.float32, torch.float64)
            if out.dtype not in kinds and args[0].dtype != torch.bool:
                raise Untraceable(f"torch's '{bare}' makes {out.dtype} of {args[0].dtype}")
            self._learn(out, source)
            return out
        weight = _is_weight(out)
        summed = before.get(_key(args[0])) if self.sums and bare in TOTALS else None
        if summed is not None and summed.is_weight and out.shape[:1] == (ROWS,) and not weight:
            self._learn(out, self._total(bare, args, summed))
            return out
        if weight and out.dtype == torch.float64:
            raise Untraceable(f"torch's '{bare}' is in float64; plans are, .to(gradient.dtype)")
        expression = self._expression(bare, args, kwargs or {}, before, weight)
        value = self._declare(expression, weight, out.dtype == torch.bool)
        if not kwargs:  # such as an `alpha` of a sum, which changes what is known of it
            self._note_logarithms(bare, args, before, value)
        if in_place:
            self._forget_views(out)
        self._learn(out, value)
        return out

    def _expression(
        self,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        before: Mapping[Any, Value | None],
        weight: bool,
    ) -> str:
        """Return the operation as C; `before` has the values of its tensors, `weight` is its
        result's.
        """

        def term(of: Any) -> str:
            if not isinstance(of, Tensor):
                return literal(of, weight)
            value = before[_key(of)]
            if value is None:
                raise Untraceable(f"torch's '{name}' reads a tensor that no step is given")
            return f"(float){value}" if weight and not value.is_weight else value.name

        divisor = before.get(_key(args[1])) if name == "div" else None
        if weight and divisor is not None and not divisor.is_weight:
            # Once a row in place of once a weight, for at most one more rounding.
            return f"{term(args[0])} * (float)(1 / {divisor})"
        if name == "exp" and term(args[0]) in self.scaled:
            return self._power(*self.scaled[term(args[0])])
        if name in OTHERS:
            return OTHERS[name](term, args, kwargs)
        operation = OPERATIONS.get(name, "")
        if operation and not kwargs and len(args) == len(set(re.findall(r"{\d}", operation))):
            return operation.format(*(term(of) for of in args))
        raise Untraceable(f"torch's '{name}' is not one of the operations that are known in C")

    def _power(self, x: str, y: str) -> str:
        """Emit x**y as e^(y log x) for a weight x and a number y, with the limits at 0 and
        infinity.
        """
        condition = f"fabs({y}) < 0.98"
        quicker = f"small_log_power({x},"
        if x in self.positive:
            condition += f" && {self.positive[x]} >= 1.17549436e-38"
            quicker = f"positive_log_power({x},"
        self.quick.append((condition, f"log_power({x},", quicker))
        ends = [self._declare(f"exp({y} * {end})", False) for end in ("-INFINITY", "INFINITY")]
        return f"log_power({x}, (float){y}, (float){ends[0]}, (float){ends[1]})"

    def _note_logarithms(
        self, name: str, args: Sequence[Any], before: Mapping[Any, Value | None], value: Value
    ) -> None:
        """Note values of the form y · log x, whose exponential is a power and faster than both.

        Values above 0 are noted as well, which makes a power faster still.
        """
        values = [before.get(_key(of)) for of in args]
        present = [operand for operand in values if operand is not None]
        if name == "abs" and value.is_weight:
            self.sizes.add(value.name)
        if name == "add" and len(present) == 2 and len(args) == 2:
            for size, number in (present, present[::-1]):
                if size.name in self.sizes and not number.is_weight:
                    self.positive[value.name] = number.name
        if name == "log" and value.is_weight and present:
            self.logarithms[value.name] = present[0].name
        if name == "mul" and len(present) == 2:
            for a, b in (present, present[::-1]):
                if a.name in self.logarithms and not b.is_weight:
                    self.scaled[value.name] = (self.logarithms[a.name], b.name)

    def _declare(self, expression: str, weight: bool, is_bool: bool = False) -> Value:
        name = self._name()
        kind = "int" if is_bool else "float" if weight else "double"
        (self.weights if weight else self.numbers).append(f"const {kind} {name} = {expression};")
        return Value(name, weight)

    def _total(self, name: str, args: Sequence[Any], value: Value) -> Value:
        """Return a sum of a weight over all weights, or its length."""
        total = self._name()
        term = f"(double){value}"
        squared = name == "linalg_vector_norm"
        if squared and args[1:2] not in ([], (), (2,), [2]):
            raise Untraceable(f"torch's '{name}' is known of order 2 alone")
        each = f"{term} * {term}" if squared else term
        weights = "\n        ".join(self.weights)
        self.numbers.append(TOTAL.format(name=total, weights=weights, term=each))
        sum_value = Value(total, False)
        return self._declare(f"square_root({sum_value})", False) if squared else sum_value

    def _name(self) -> str:
        self.count += 1
        return f"t{self.count - 1}"

    def _learn(self, tensor: Tensor, value: Value) -> None:
        self.alive.append(tensor)
        self.values_of[_key(tensor)] = value

    def _forget_views(self, changed: Tensor) -> None:
        """Forget every view of a tensor that was changed in place."""
        memory = _key(changed)[0]
        self.values_of = {key: value for key, value in self.values_of.items() if key[0] != memory}

    def value(self, tensor: Tensor, *, weight: bool) -> str:
        """Return the name of a result."""
        traced = self.values_of.get(_key(tensor))
        if traced is None:
            raise Untraceable("the result is not computed from what a step is given")
        return f"(float){traced}" if weight and not traced.is_weight else traced.name


def literal(value: Any, weight: bool) -> str:
    """Return a Python number as C writes it.

    >>> literal(0.1, True), literal(2, False), literal(-inf, False)
    ('0.1f', '2.0', '-INFINITY')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Untraceable(f"{value!r} is not a number")
    if isnan(value):
        return "NAN"
    if abs(value) == inf:
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{float(value)!r}f" if weight else repr(float(value))


def _key(tensor: Any) -> tuple[Any, ...]:
    """Return a key of a tensor's memory while it lives, whatever object refers to it."""
    if not isinstance(tensor, Tensor):
        return (None,)
    storage = tensor.untyped_storage()
    return storage.data_ptr(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _is_weight(tensor: Tensor) -> bool:
    """Return whether a tensor has an entry for each weight; Untraceable if it has neither that
    shape.
    """
    if tensor.shape == (ROWS, COLUMNS):
        return True
    if tensor.shape in ((), (1,), (ROWS,), (1, 1), (ROWS, 1)):
        return False
    raise Untraceable(
        f"a tensor of shape {list(tensor.shape)} has neither one entry a row nor one a weight"
    )
