"""A vehicle's whole round in one call of C, given a compiler.

Between two products of a small model Python and torch take about as long as the product. Where a
model has a step in C (`Kernel.step`), it is put together with the step that is traced from the
rules (`fused_step`), the traced slope of the loss and a loop over steps: a vehicle then trains with
everything it needs in one core's cache, and Python has the time to keep all cores at it. Where
anything has no C (another model, a rule that cannot be traced, a loss that rules have a say in,
float64, no compiler), blocks of vehicles are trained with torch: see `engine.cpu`.
"""

import ctypes
import threading
import warnings
from functools import cache
from pathlib import Path
from sys import byteorder
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedwatt.engine.job import Job
from fedwatt.engine.kernels.c_compiler import SlowerInTorch, compiled
from fedwatt.engine.kernels.fused_step import CStep, c_step, pointers, step_timed_as
from fedwatt.engine.kernels.trace import COLUMNS, ROWS, Untraceable, statements
from fedwatt.models import Loss
from fedwatt.models.model import ModelStep, kernel_for

SOURCE = Path(__file__).with_suffix(".c")

SLOPE = """
static inline float loss_slope(float prediction, float label) {{
    {statements}
    return {result};
}}
"""

INPUTS = ("series", "starts", "labels", "anchors", "numbers", "tensors", "sizes", "sgemm")
POINTERS = (*INPUTS, "path")
NUMBERS = ("features", "batch", "columns")


class RoundArguments(ctypes.Structure):
    """Arguments that the vehicles of a round share: `round_t` in whole_round.c."""

    _fields_: ClassVar = [
        *((name, ctypes.c_void_p) for name in POINTERS),
        *((name, ctypes.c_int64) for name in NUMBERS),
    ]


class WholeRound:
    """Vehicles of a stack, each trained by one call."""

    def __init__(self, job: Job, step: CStep, model: ModelStep, library: Any) -> None:
        pointer = ctypes.c_void_p
        number = ctypes.c_int64
        library.train.argtypes = [pointer, number, number, pointer, number, pointer, pointer]
        library.train.restype = ctypes.c_double
        self.function = library.train
        self.cost = step_timed_as(job.rules)
        anchor = job.anchor.contiguous()
        batches = job.batches
        self.batches = batches
        pool = batches.pool
        windows = batches.pool.train
        _, columns = anchor.shape
        inputs = (pool.series, windows.starts, windows.labels, anchor, step.columns(job))
        tensors = step.weights(job)
        self.kept = [*(tensor.contiguous() for tensor in inputs), *tensors]
        self.sizes = torch.tensor(model.sizes)
        self.tensors = pointers(tensors)
        self.round = RoundArguments(
            *(tensor.data_ptr() for tensor in self.kept[: len(inputs)]),
            ctypes.addressof(self.tensors),
            self.sizes.data_ptr(),
            _sgemm(),
            None if job.path is None else job.path.data_ptr(),
            pool.series.shape[1],
            batches.size,
            columns,
        )
        # Weights, weights a step ago, gradient, what rules that explore keep, weights before they
        # are moved where that is measured; labels and lines of a batch; what the model needs. Each
        # begins where a line of the cache does, 16 numbers apart at most.
        vectors = 3 + (step.vectors or 0) + (job.path is not None)
        self.floats = vectors * (columns + 16) + 3 * (batches.size + 16) + model.work
        self.own = threading.local()
        self.deltas = torch.empty_like(job.anchor)
        """Δ_k [P, D] of the vehicles that have been trained."""

    def __call__(self, row: int, steps: int) -> tuple[Tensor, float]:
        """Return (Δ_k [D] after `steps` of the vehicle in `row`, seconds of the steps alone)."""
        order = self.batches.draws[row].order()
        delta = self.deltas[row]
        base = int(self.batches.pool.train.offsets[self.batches.vehicles[row]])
        where = order.ctypes.data, base, self._memory(), delta.data_ptr()
        seconds: float = self.function(ctypes.byref(self.round), row, steps, *where)
        return delta, seconds

    def _memory(self) -> int:
        """Return the size of a thread's memory: its vehicles share it, so it stays in the cache."""
        if not hasattr(self.own, "memory"):
            self.own.memory = torch.empty(self.floats)
        address: int = self.own.memory.data_ptr()
        return address


def whole_round(job: Job) -> WholeRound | None:
    """Return the round of a job in C, or None if it has to be left to torch."""
    step = c_step(job)
    model = kernel_for(job.model).step(job.model, job.batches.size, job.batches.pool.window)
    if step is None or model is None or (model.multiplies and not _sgemm()):
        return None
    if step.vectors is None:
        return None  # a rule explores in a way that has no C
    if model.reads != job.batches.pool.window * job.batches.pool.series.shape[1]:
        return None  # made for other windows: torch says so, where C would read on
    slope = None if job.shapes_loss else c_slope(job.loss)
    if slope is None:
        return None
    library = compiled("\n".join((step.source, slope, SOURCE.read_text(), model.source)))
    return None if library is None else WholeRound(job, step, model, library)


@cache
def c_slope(loss: Loss) -> str | None:
    """Return `loss_slope` in C, traced from the loss; None, with a warning, where tracing fails."""
    inputs = {name: torch.rand(ROWS, COLUMNS) for name in ("prediction", "label")}
    try:
        slope = statements(lambda of: loss.slope(of["prediction"], of["label"]), inputs)
    except Untraceable as problem:
        name = type(loss).__name__
        warnings.warn(
            f"Steps on the loss {name} run in torch, which is slower than C: {problem}.",
            SlowerInTorch,
            stacklevel=2,
        )
        return None
    lines = "\n    ".join((*slope.numbers, *slope.weights))
    return SLOPE.format(statements=lines, result=slope.result)


@cache
def _sgemm() -> int | None:
    """Return the address of the matrix product in torch's linear algebra library, or None."""
    if byteorder != "little":
        return None
    folder = Path(torch.__file__).parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        if (folder / name).exists():
            try:
                symbol = ctypes.CDLL(str(folder / name)).sgemm_
            except (OSError, AttributeError):
                return None
            return ctypes.cast(symbol, ctypes.c_void_p).value
    return None
