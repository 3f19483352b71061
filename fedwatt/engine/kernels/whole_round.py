"""A vehicle's whole round in one call of C, where a compiler is installed.

Between two products of a small model Python and torch take about as long as the product. A model
may therefore say how it takes a step in C, too (`Model.in_c`). Put together with the rules' own C
(`fused`) and a loop over steps, a vehicle trains with everything it needs in one core's cache, and
Python has the time to keep all cores at it. Where anything has no C (another model or rule, a loss
that rules have a say in, float64, no compiler), blocks of vehicles are trained with torch: see
`blocks`.
"""

import ctypes
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from sys import byteorder
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from fedwatt.engine.batches import Batches
from fedwatt.engine.job import Job
from fedwatt.engine.kernels import fused_step
from fedwatt.engine.kernels.c_compiler import compiled
from fedwatt.models.model import GRADIENT_HOOKS, ModelInC, speaks_c

SOURCE: Final = Path(__file__).with_suffix(".c")

SLOPE: Final = """
static inline float loss_slope(float prediction, float label) {{ return {slope}; }}
"""

POINTERS: Final = ("series", "starts", "labels", "anchors", "numbers", "tensors", "sizes", "sgemm")
NUMBERS: Final = ("features", "batch", "columns")


class Round(ctypes.Structure):
    """What the vehicles of a round share: `round_t` in compiled.c."""

    _fields_: ClassVar = [
        *((name, ctypes.c_void_p) for name in POINTERS),
        *((name, ctypes.c_int64) for name in NUMBERS),
    ]


class Compiled:
    """Vehicles of a stack, each trained by one call."""

    def __init__(
        self,
        function: Any,
        said: ModelInC,
        anchor: Tensor,
        numbers: Tensor,
        tensors: Sequence[Tensor],
        batches: Batches,
        *,
        cost: str,
    ) -> None:
        self.function, self.batches, self.cost = function, batches, cost
        self.deltas = torch.empty_like(anchor)
        """Δ_k [P, D] of the vehicles that have been trained."""
        pool, windows, (_, columns) = batches.pool, batches.pool.train, anchor.shape
        kept = (pool.series, windows.starts, windows.labels, anchor, numbers)
        self.kept = [*(tensor.contiguous() for tensor in kept), *tensors]
        self.sizes, self.tensors = torch.tensor(said.sizes), fused_step.pointers(tensors)
        self.round = Round(
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
        self.floats = 3 * (columns + 16) + 3 * (batches.size + 16) + said.work
        self.own = threading.local()

    def __call__(self, row: int, steps: int) -> tuple[Tensor, float]:
        """(Δ_k [D] after `steps` of the vehicle in `row`, seconds of the steps themselves)."""
        # A thread's vehicles use the same memory, which stays in its core's cache.
        if not hasattr(self.own, "memory"):
            self.own.memory = self.deltas.new_empty(self.floats)
        order = self.batches.draws[row].order()
        base = self.batches.pool.train.offsets[self.batches.vehicles[row]]
        delta = self.deltas[row]
        seconds: float = self.function(
            ctypes.byref(self.round),
            row,
            steps,
            order.ctypes.data,
            int(base),
            self.own.memory.data_ptr(),
            delta.data_ptr(),
        )
        return delta, seconds


def whole_round(job: Job) -> Compiled | None:
    """The round of a job in C, or None if it has to be left to torch."""
    anchor, batches = job.anchor, job.batches
    spoken = fused_step.in_c(job.rules, job.plans, anchor)
    said = job.model.in_c(batches.size, batches.pool.window)
    if spoken is None or said is None or not job.loss.slope_in_c or job.shapes_loss:
        return None
    if not speaks_c(job.model, *GRADIENT_HOOKS) or (said.multiplies and not _sgemm()):
        return None
    if said.reads != batches.pool.window * batches.pool.series.shape[1]:
        return None  # made for other windows: torch says so, where C would read on
    slope = SLOPE.format(slope=job.loss.slope_in_c)
    parts = (fused_step.step_source(job.rules, spoken), slope, SOURCE.read_text(), said.source)
    library = compiled("\n".join(parts))
    if library is None:
        return None
    function, pointer, number = library.train, ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [pointer, number, number, pointer, number, pointer, pointer]
    function.restype = ctypes.c_double
    return Compiled(
        function,
        said,
        anchor.contiguous(),
        fused_step.columns_of(spoken, job.rate, anchor),
        fused_step.tensors_of(spoken, anchor),
        batches,
        cost=fused_step.cost_of(job.rules),
    )


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
