"""Points at which exploring rules take a step's gradients, as C traced from their `explore`.

A rule that explores asks for gradients at other points than the weights: SAM's second one is uphill
of the first. Its work between two gradients is element-wise but for sums over the weights (a norm),
so it is traced like a step (`trace`), one function of C for each point. The last gradient has to be
the result of the rule: it moves the weights piece by piece while they are in the cache
(`whole_round.c`). A rule that does anything else (asks for the loss itself, mixes gradients,
branches on a value) runs in torch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

from torch import Tensor

from fedwatt.engine.kernels.trace import Statements, Untraceable, statements
from fedwatt.engine.step import through_rules
from fedwatt.methods.rule import LocalRule, Rows, StepLoss

MOST = 4
"""Gradients that a step may take."""
FOUND = tuple(f"found{place}" for place in range(MOST))
"""Gradients of a step, in the order in which they are asked for: inputs of the points."""
POINT = Template(Path(__file__).with_suffix(".c").read_text("utf-8"))
TYPE = """
typedef void point_t(const float *, const float *, const float *const *, const double *,
                     const float *const *, float *, int64_t);
"""


class _Reached(Exception):
    """Carries the point at which a gradient is asked for."""

    def __init__(self, point: Tensor) -> None:
        super().__init__()
        self.point = point


def traced_points(
    rules: Sequence[LocalRule], plans: Sequence[Rows], inputs: Mapping[str, Tensor]
) -> tuple[Statements, ...]:
    """Return the points of a step's gradients, of `inputs` that include all of FOUND.

    Untraceable where points alone do not express the step.
    """
    taken = 0

    def explore(of: Mapping[str, Tensor], stop: int) -> Tensor:
        """Return the result of the rules, or the point of their gradient number `stop`."""
        nonlocal taken
        taken = 0

        def gradient(point: Tensor) -> Tensor:
            nonlocal taken
            if taken == stop:
                raise _Reached(point)
            if taken == MOST:
                raise Untraceable(f"it takes more than {MOST} gradients a step")
            taken += 1
            return of[FOUND[taken - 1]]

        def value(point: Tensor) -> Tensor:
            raise Untraceable("it asks for the loss itself")

        loss = StepLoss(gradient, value, of["rate"])
        try:
            return through_rules(rules, plans, of["anchor"], loss).gradient(of["weight"])
        except _Reached as here:
            return here.point

    complete = statements(lambda of: explore(of, MOST + 1), inputs, sums=True)
    count = taken
    if count == 0 or complete.result != FOUND[count - 1]:
        raise Untraceable("it does not return the last gradient that it asked for")
    return tuple(
        statements(lambda of, stop=stop: explore(of, stop), inputs, sums=True)
        for stop in range(count)
    )


def vectors(points: Sequence[Statements]) -> int:
    """Return the number of weight vectors that hold a step's points and gradients.

    All gradients but the last are kept, and a point lies where its own gradient goes, or the one
    before it.
    """
    return max(len(points) - 1, int(any(point.result != "weight" for point in points)))


def points_as_c(
    points: Sequence[Statements], declared: Sequence[str], entries: Sequence[str]
) -> str:
    """Return the C table `points` of functions, NULL where the gradient is taken at the weights.

    `given` are the statements of a row's numbers, `entries` those of tensors with an entry for each
    weight.
    """
    functions = []
    names = []
    for place, point in enumerate(points):
        if point.result == "weight":
            names.append("NULL")
            continue
        gradients = (f"const float {name} = found[{n}][i];" for n, name in enumerate(FOUND[:place]))
        read = ("const float weight = weights[i], anchor = anchors[i];", *gradients, *entries)
        loads = "\n        ".join(read)
        text = POINT.substitute(
            place=place,
            numbers="\n    ".join((*declared, *point.numbers)),
            loads=loads,
            weights="\n        ".join(point.weights),
            result=point.result,
        )
        functions.append(Template(text).substitute(loads=loads))
        names.append(f"point_{place}")
    table = f"static point_t *const points[] = {{{', '.join(names)}}};\n"
    return "\n".join((TYPE, *functions, table))
