"""A vehicle's whole round, or the gradient of a batch, in one call of C, given a compiler.

Between two products of a small model Python and torch take about as long as the product. Where a
model has a step in C (`Kernel.step`), it is put together with the step that is traced from the
rules (`fused_step`), the traced slope of the loss and a loop over steps: a vehicle then trains with
everything it needs in one core's cache, and Python has the time to keep all cores at it. Rules that
explore are left in torch and given gradients by the same C. Where anything has no C (another model,
a rule that cannot be traced, a loss that rules have a say in, float64, no compiler), blocks of
vehicles are trained with torch: see `engine.cpu`.
"""

import ctypes
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from sys import byteorder
from typing import Any, ClassVar, Final, TypeVar

import torch
from torch import Tensor

from fedwatt.engine.job import Job
from fedwatt.engine.kernels.c_compiler import SlowerInTorch, compiled
from fedwatt.engine.kernels.fused_step import PRELUDE, CStep, c_step, pointers, step_timed_as
from fedwatt.engine.kernels.trace import COLUMNS, ROWS, Untraceable, statements
from fedwatt.models import Loss
from fedwatt.models.kernel import ModelStep, kernel_for

SOURCE: Final = Path(__file__).with_suffix(".c")

SLOPE: Final = """
static inline float loss_slope(float prediction, float label) {{
    {statements}
    return {result};
}}
"""

COPY: Final = """
enum { NUMBERS = 1, TENSORS = 0, LOOKS_BACK = 0 };
static void first_part(const float *gradients, const float *weights, float *result,
                       const float *anchors, const double *number, const float *const *tensors,
                       int64_t begin, int64_t end) {
    memcpy(result + begin, gradients, (end - begin) * sizeof(float));
}
#define later_part first_part
"""
"""A step that hands over the gradient."""

POINTERS: Final = ("series", "starts", "labels", "anchors", "numbers", "tensors", "sizes", "sgemm")
NUMBERS: Final = ("features", "batch", "columns")


class RoundArguments(ctypes.Structure):
    """What the vehicles of a round share: `round_t` in compiled.c."""

    _fields_: ClassVar = [
        *((name, ctypes.c_void_p) for name in POINTERS),
        *((name, ctypes.c_int64) for name in NUMBERS),
    ]


class _InC:
    """What C is given of a job, and memory for each thread that calls it."""

    def __init__(self, job: Job, step: CStep, model: ModelStep, function: Any) -> None:
        anchor, batches = job.anchor.contiguous(), job.batches
        self.function, self.batches = function, batches
        pool, windows, (_, columns) = batches.pool, batches.pool.train, anchor.shape
        kept = (pool.series, windows.starts, windows.labels, anchor, step.columns(job))
        tensors = step.weights(job)
        self.kept = [*(tensor.contiguous() for tensor in kept), *tensors]
        self.sizes, self.tensors = torch.tensor(model.sizes), pointers(tensors)
        self.round = RoundArguments(
            *(tensor.data_ptr() for tensor in self.kept[: len(kept)]),
            ctypes.addressof(self.tensors),
            self.sizes.data_ptr(),
            _sgemm(),
            pool.series.shape[1],
            batches.size,
            columns,
        )
        # Weights, weights a step ago, gradient; labels and lines of a batch; what the model needs.
        # Each begins where a line of the cache does, 16 numbers apart at most.
        self.floats = 3 * (columns + 16) + 3 * (batches.size + 16) + model.work
        self.own = threading.local()

    def memory(self) -> int:
        """Where a thread's own memory is: its vehicles share it, so it stays in a core's cache."""
        if not hasattr(self.own, "memory"):
            self.own.memory = torch.empty(self.floats)
        address: int = self.own.memory.data_ptr()
        return address

    def first_window(self, row: int) -> int:
        """The number, in the pool, of the first training window of the vehicle in `row`."""
        return int(self.batches.pool.train.offsets[self.batches.vehicles[row]])


class WholeRound(_InC):
    """Vehicles of a stack, each trained by one call."""

    def __init__(self, job: Job, step: CStep, model: ModelStep, library: Any) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        library.train.argtypes = [pointer, number, number, pointer, number, pointer, pointer]
        library.train.restype = ctypes.c_double
        super().__init__(job, step, model, library.train)
        self.cost = step_timed_as(job.rules)
        self.deltas = torch.empty_like(job.anchor)
        """Δ_k [P, D] of the vehicles that have been trained."""

    def __call__(self, row: int, steps: int) -> tuple[Tensor, float]:
        """(Δ_k [D] after `steps` of the vehicle in `row`, seconds of the steps themselves)."""
        order = self.batches.draws[row].order()
        base, delta = self.first_window(row), self.deltas[row]
        where = order.ctypes.data, base, self.memory(), delta.data_ptr()
        seconds: float = self.function(ctypes.byref(self.round), row, steps, *where)
        return delta, seconds


class CGradient(_InC):
    """Gradients of a vehicle's batches, each by one call."""

    def __init__(self, job: Job, step: CStep, model: ModelStep, library: Any) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        library.gradient.argtypes = [pointer, pointer, pointer, number, pointer, pointer]
        library.gradient.restype = None
        super().__init__(job, step, model, library.gradient)

    def of_steps(self, row: int) -> Iterator[Callable[[Tensor], Tensor]]:
        """For each step of the vehicle in `row`: weights [1, D] → the gradient there, [1, D]."""
        order, base = self.batches.draws[row].order(), self.first_window(row)

        shared, memory, begin = ctypes.byref(self.round), self.memory(), order.ctypes.data

        def gradient(step: int, point: Tensor) -> Tensor:
            batch, point = begin + step * order.strides[0], point.contiguous()
            found = torch.empty_like(point)
            self.function(shared, point.data_ptr(), batch, base, memory, found.data_ptr())
            return found

        return (partial(gradient, step) for step in range(len(order)))


Made = TypeVar("Made", WholeRound, CGradient)


def whole_round(job: Job) -> WholeRound | None:
    """The round of a job in C, or None if it has to be left to torch."""
    return None if job.explores else _in_c(job, c_step(job), WholeRound)


def c_gradient(job: Job) -> CGradient | None:
    """Gradients in C for the rules of a job that explore, or None if torch has to take them."""
    in_c = job.explores and job.anchor.dtype == torch.float32 and not job.anchor.is_cuda
    return _in_c(job, CStep(PRELUDE.read_text("utf-8") + COPY, (), ()), CGradient) if in_c else None


def _in_c(job: Job, step: CStep | None, kind: type[Made]) -> Made | None:
    model = kernel_for(job.model).step(job.model, job.batches.size, job.batches.pool.window)
    if step is None or model is None or (model.multiplies and not _sgemm()):
        return None
    if model.reads != job.batches.pool.window * job.batches.pool.series.shape[1]:
        return None  # made for other windows: torch says so, where C would read on
    slope = None if job.shapes_loss else c_slope(job.loss)
    if slope is None:
        return None
    library = compiled("\n".join((step.source, slope, SOURCE.read_text(), model.source)))
    return None if library is None else kind(job, step, model, library)


@cache
def c_slope(loss: Loss) -> str | None:
    """`loss_slope` in C, traced from the loss; None, with a warning, where it cannot be."""
    inputs = {name: torch.rand(ROWS, COLUMNS) for name in ("prediction", "label")}
    try:
        found = statements(lambda of: loss.slope(of["prediction"], of["label"]), inputs)
    except Untraceable as problem:
        name = type(loss).__name__
        warnings.warn(
            f"Steps on the loss {name} run in torch, which is slower than C: {problem}.",
            SlowerInTorch,
            stacklevel=2,
        )
        return None
    lines = "\n    ".join((*found.numbers, *found.weights))
    return SLOPE.format(statements=lines, result=found.result)


@cache
def _sgemm() -> int | None:
    """Where the matrix product of torch's own linear algebra library is; None: not to be found."""
    if byteorder != "little":
        return None
    folder = Path(torch.__file__).parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        if (folder / name).exists():
            try:
                found = ctypes.CDLL(str(folder / name)).sgemm_
            except (OSError, AttributeError):
                return None
            return ctypes.cast(found, ctypes.c_void_p).value
    return None
