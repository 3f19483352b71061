"""A vehicle's whole round in one call of C, where a compiler is installed.

Between two products of a small model Python and torch take about as long as the product. A model
may therefore say how its gradient is computed in C, too (`Model.in_c`), with the matrix product of
the library that torch brings. Put together with the rules' own C (`fused`) and a loop over steps,
a vehicle trains with everything it needs in one core's cache, and Python has the time to keep all
cores at it. Where anything has no C (another model or rule, a loss that rules have a say in,
float64, no compiler), blocks of vehicles are trained with torch: see `blocks`.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from sys import byteorder
from typing import Any, Final

import torch
from torch import Tensor

from fedwatt.federation import fused
from fedwatt.federation.batches import StackedBatches
from fedwatt.federation.local import is_shaped
from fedwatt.methods.rule import LocalRule, Rows
from fedwatt.models import Loss, Model
from fedwatt.models.model import ModelInC, speaks_c

PRELUDE: Final = Path(__file__).with_suffix(".c")

TRAIN: Final = """
static inline float loss_slope(float prediction, float label) {{ return {slope}; }}

{model}

/* Steps of one vehicle; `apart` is what lies between the batches of two steps. Returns the seconds
   of all that is not the gradient. */
double train(const float *series, int64_t features, const int64_t *starts, const float *labels,
             const float *shares, int64_t apart, int64_t steps, int64_t batch, int64_t width,
             const int64_t *sizes, const float *anchor, const float *numbers,
             const float *const *tensors, int64_t columns, float *weights, float *previous,
             float *gradient, float *windows, float *work, sgemm_t *sgemm) {{
    double spent = 0.0;
    for (int64_t step = 0; step < steps; step++) {{
        const int64_t at = step * apart;
        for (int64_t b = 0; b < batch; b++)
            memcpy(windows + b * width, series + starts[at + b] * features, width * sizeof(float));
        model_gradient(weights, windows, labels + at, shares + at, batch, sizes, gradient, work,
                       sgemm);
        const double before = seconds_now();
        (step ? later : first)(gradient, weights, previous, anchor, numbers, tensors, 1, columns);
        spent += seconds_now() - before;
        /* The newer weights are where the older ones were. */
        float *older = weights;
        weights = previous;
        previous = older;
    }}
    return spent;
}}
"""


class Compiled:
    """Vehicles of a stack, each trained by one call."""

    def __init__(
        self,
        function: Any,
        said: ModelInC,
        anchor: Tensor,
        numbers: Tensor,
        tensors: Sequence[Tensor],
        batches: StackedBatches,
        *,
        looks_back: bool,
        cost: str,
    ) -> None:
        self.function, self.anchor, self.numbers = function, anchor, numbers
        self.tensors, self.batches, self.looks_back = tensors, batches, looks_back
        self.cost = cost
        """What the time of steps is booked under."""
        self.sizes, self.work = torch.tensor(said.sizes), said.work
        self.starts = batches.starts.contiguous()
        self.labels, self.share = batches.labels.contiguous(), batches.share.contiguous()

    def __call__(self, row: int, steps: int) -> tuple[Tensor, float]:
        """(Δ_k [D] after `steps` of the vehicle in `row`, seconds of the steps themselves)."""
        pool, (_, stack, batch) = self.batches.pool, self.share.shape
        width, columns = pool.rows.shape[1], self.anchor.shape[1]
        weights = self.anchor[row].clone()
        previous = weights.clone() if self.looks_back else weights
        scratch = [self.anchor.new_empty(size) for size in (batch * width, self.work)]
        # Weights that the model's own gradient does not reach (exits of FedEL's) have gradient 0.
        gradient = torch.zeros_like(weights)
        spent: float = self.function(
            pool.series.data_ptr(),
            pool.series.shape[1],
            *(values[0, row].data_ptr() for values in (self.starts, self.labels, self.share)),
            stack * batch,
            steps,
            batch,
            width,
            self.sizes.data_ptr(),
            self.anchor[row].data_ptr(),
            self.numbers[row].data_ptr(),
            fused.pointers([tensor[row] for tensor in self.tensors]),
            columns,
            weights.data_ptr(),
            previous.data_ptr(),
            gradient.data_ptr(),
            *(buffer.data_ptr() for buffer in scratch),
            _sgemm(),
        )
        newest = previous if steps % 2 else weights
        return newest - self.anchor[row], spent


def compiled_round(
    rules: Sequence[LocalRule],
    plans: Sequence[Rows],
    task: tuple[Model, Loss],
    anchor: Tensor,
    rate: float | Tensor,
    batches: StackedBatches,
) -> Compiled | None:
    """The round of a stack at `anchor` [P, D] in C, or None if it has to be left to torch."""
    model, loss = task
    spoken = fused.in_c(rules, plans, anchor)
    said = model.in_c(batches.share.shape[-1], batches.pool.window)
    if spoken is None or said is None or not loss.slope_in_c or is_shaped(rules, plans):
        return None
    if not speaks_c(model, "gradient", "represent", "head") or not _sgemm():
        return None
    source = fused.step_source(rules, spoken) + PRELUDE.read_text()
    library = fused.compiled(source + TRAIN.format(slope=loss.slope_in_c, model=said.source))
    if library is None:
        return None
    function = library.train
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [
        *(pointer, number, pointer, pointer, pointer, number, number, number, number, pointer),
        *(pointer, pointer, pointer, number, pointer, pointer, pointer, pointer, pointer, pointer),
    ]
    function.restype = ctypes.c_double
    return Compiled(
        function,
        said,
        anchor.contiguous(),
        fused.columns_of(spoken, rate, anchor),
        fused.tensors_of(spoken, anchor),
        batches,
        looks_back=any(rule.looks_back for rule in rules),
        cost=fused.cost_of(rules),
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
