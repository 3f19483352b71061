"""A vehicle's whole round of an MLP on an NVIDIA GPU: one kernel for all steps of all vehicles.

Recorded step by step (`engine.gpu`), a stack's weights, gradients and activations go through the
GPU's memory some twenty times a step. mlp.cu gives every vehicle a multiprocessor of its own, which
keeps its weights in registers from the first step to the last. What rules do to a weight is traced
from their torch functions, as it is for C (`trace`), and the slope of the loss, too. A row's bits
do not depend on the other rows.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from fedwatt.engine.job import Job
from fedwatt.engine.kernels.cuda_compiler import Launch, cuda_kernels
from fedwatt.engine.kernels.fused_step import CStep, traced_step
from fedwatt.engine.kernels.trace import Statements, Untraceable
from fedwatt.engine.kernels.whole_round import c_slope
from fedwatt.models import MLP

FOLDER = Path(__file__).parent

REGISTERS = 256
"""Tiles [16, 8] of the first matrix that the registers of a multiprocessor hold, beside what the
products and rules need."""

STRUCTS = """
/* Inputs of a weight's step other than itself and its gradient: column by column of the scratch, of
   which the first is w_(h-1) where a rule looks back. */
struct Beside {{
    float {columns};
}};

Beside beside(const float *scratch, int i) {{
    return {{{one}}};
}}

void four_beside(Beside (&read)[4], const float *scratch, int i) {{
    {four}
}}
{first}{later}
struct Mover {{
    float *scratch;
    First first;
    Later later;
    bool is_first;
}};
"""

RULE = """
struct {name} {{
    double {numbers};
    float {factors};
    explicit {name}(const double *number) {{
        {given}
    }}
    float operator()(float gradient, float weight, const Beside &of) const {{
        {weights}
        return {result};
    }}
}};
"""


def columns(step: CStep) -> dict[str, str]:
    """Map further inputs of a weight's step, beside it and its gradient, to their source in C++."""
    text = " ".join(line for statements in (step.first, step.later) for line in statements.weights)
    sources = {"previous": "anchor"} if step.looks_back else {}
    if re.search(r"\banchor\b", text):
        sources["anchor"] = "anchor"
    return sources | {name: f"{name} + begins" for name in (_name(*of) for of in step.tensors)}


def movers(step: CStep) -> str:
    """Return the rules' steps as C++."""
    names = list(columns(step))
    loads = [
        f"const float4 v{i} = *(const float4 *)(scratch + {i} * SCRATCH + i);"
        for i in range(len(names))
    ]
    loads += [
        f"read[{lane}].{name} = v{i}.{part};"
        for i, name in enumerate(names)
        for lane, part in enumerate("xyzw")
    ]
    return STRUCTS.format(
        columns=", ".join(names) or "none",
        one=", ".join(f"scratch[{i} * SCRATCH + i]" for i in range(len(names))),
        four="\n    ".join(loads),
        first=_rule("First", step, step.first),
        later=_rule("Later", step, step.later),
    )


def _name(place: int, where: str, name: str) -> str:
    return f"{where}{place}_{name}"


def _rule(name: str, step: CStep, statements: Statements) -> str:
    numbers = {"rate": "number[0]"}
    numbers |= {_name(*s): f"number[{i}]" for i, s in enumerate(step.numbers, start=1)}
    for line in statements.numbers:
        match = re.fullmatch(r"const (?:double|int) (\w+) = (.*);", line)
        if match is None:
            raise Untraceable("a sum over weights has no kernel")
        numbers[match[1]] = match[2]
    factors: dict[str, str] = {}

    def factor(match: re.Match[str]) -> str:
        return factors.setdefault(match[0], f"factor{len(factors)}")

    # What is the same for all weights of a row is rounded to float once.
    cast = re.compile(r"\(float\)(?:\w+|\([^()]*\))")
    lines = [cast.sub(factor, line) for line in (*statements.weights, statements.result)]
    entries = [f"const float {n} = of.{n};" for n in columns(step)]
    declarations = [f"{n} = {value};" for n, value in numbers.items()]
    declarations += [f"{n} = {value};" for value, n in factors.items()]
    return RULE.format(
        name=name,
        numbers=", ".join(numbers),
        factors=", ".join(factors.values()) or "none",
        given="\n        ".join(declarations),
        weights="\n        ".join((*entries, *lines[:-1])),
        result=lines[-1],
    )


@dataclass(frozen=True)
class GpuRound:
    """The kernel of a model, a composition of rules, a loss and a batch size."""

    step: CStep
    launch: Launch
    threads: int  # of a vehicle
    scratch: int  # floats of a vehicle

    def __call__(self, job: Job) -> Tensor:
        """Return Δ_k [P, D]."""
        anchor = job.anchor.contiguous()
        batches = job.batches
        starts, labels, shares = (values.contiguous() for values in batches.tensors)
        steps = torch.tensor(job.steps, device=anchor.device)
        # A stack of several jobs has its numbers in float32; alone they are the same.
        numbers = self.step.columns(job).float().double()
        tensors = self.step.weights(job)
        scratch = anchor.new_empty((len(anchor), self.scratch)) if self.scratch else None
        moved = torch.empty_like(anchor)
        rows = len(job.steps)
        self.launch(
            (rows, 1),
            self.threads,
            *(batches.pool.series, starts, labels, shares, steps, rows),
            *(anchor, numbers, scratch, moved, *tensors),
        )
        return moved


def gpu_round(job: Job) -> GpuRound | None:
    """Return the round of a job in one kernel, or None if it has to be recorded step by step."""
    model = job.model
    pool = job.batches.pool
    if type(model) is not MLP or len(model.hidden) != 2:
        return None
    if job.anchor.dtype != torch.float32 or not job.anchor.is_cuda:
        return None
    if job.explores or job.path is not None or model.layout.size != job.anchor.shape[1]:
        return None
    if model.window * model.features != pool.window * pool.series.shape[1]:
        return None  # made for other windows: torch says so
    if any(rule.shapes_loss for rule in job.rules) and job.shapes_loss:  # which waits for the GPU
        return None
    step = traced_step(job)
    slope = c_slope(job.loss)
    if step is None or slope is None:
        return None
    inputs = model.window * model.features
    features = pool.series.shape[1]
    sizes = KernelSizes(inputs, features, *model.hidden, job.batches.size, warps_for(step))
    device = job.anchor.device.index
    if not sizes.fit(device):
        return None
    return _compiled(sizes, step, slope, 1 if job.tf32 else 3, device)


@cache
def _compiled(
    sizes: "KernelSizes", step: CStep, slope: str, products: int, device: int
) -> GpuRound | None:
    try:
        source = sizes.source(step, slope, products)
    except Untraceable:
        return None
    shared = 4 * sizes.shared_numbers
    kernels = cuda_kernels(source, ("train_round",), device, shared=shared)
    if kernels is None:
        return None
    return GpuRound(step, kernels["train_round"], 32 * sizes.warps, sizes.scratch(step))


def warps_for(step: CStep) -> int:
    """Return the warps of a block: 16, or 8 for rules that need more registers."""
    return 16 if len(columns(step)) <= 1 else 8


@dataclass(frozen=True)
class KernelSizes:
    """The sizes that a kernel is compiled for."""

    inputs: int
    features: int
    units1: int
    units2: int
    batch: int
    warps: int

    def fit(self, device: int) -> bool:
        """Return whether a GPU has tensor cores for TF32, and registers and shared memory
        enough.
        """
        properties = torch.cuda.get_device_properties(device)
        return (
            properties.major >= 8
            and self.units1 <= 128
            and self.warps * self._tiles <= REGISTERS
            and 4 * self.shared_numbers <= properties.shared_memory_per_block_optin  # type: ignore[attr-defined]
        )

    @property
    def _shares(self) -> int:
        """Warps that share the inputs of 16 units."""
        return self.warps // next(n for n in (1, 2, 4, 8) if self.units1 <= 16 * n)

    @property
    def _tiles(self) -> int:
        return -(-self.inputs // (8 * self._shares))

    @property
    def shared_numbers(self) -> int:
        """Floats of `Shared` in mlp.cu."""
        windows = _up(self.batch, 8)
        units2 = _up(self.units2, 16)
        units1 = 16 * self.warps // self._shares
        vehicle_numbers = windows * _stride(8 * self._shares * self._tiles)
        vehicle_numbers += max(2, self._shares) * windows * _stride(units1)
        vehicle_numbers += 2 * windows * _stride(units2) + units1 * _stride(units2) + units2
        return vehicle_numbers + units1 + units2 + 1 + windows

    def scratch(self, step: CStep) -> int:
        """Return the number of floats of a vehicle's scratch in mlp.cu."""
        weights = self.units1 * (1 + self.units2) + 2 * self.units2 + 1
        return len(columns(step)) * _up(128 * self.warps * self._tiles + weights, 4)

    def source(self, step: CStep, slope: str, products: int) -> str:
        """Return mlp.cu with these sizes and rules filled in."""
        tensors = [_name(*source) for source in step.tensors]
        defined = {
            "INPUTS": self.inputs,
            "FEATURES": self.features,
            "UNITS1": self.units1,
            "UNITS2": self.units2,
            "BATCH": self.batch,
            "WARPS": self.warps,
            "PRODUCTS": products,
            "NUMBERS": 1 + len(step.numbers),
            "LOOKS_BACK": int(step.looks_back),
            "COLUMNS": len(columns(step)),
            "SOURCES": ", ".join(columns(step).values()) or "nullptr",
            "TENSOR_PARAMETERS": "".join(f", const float *{name}" for name in tensors),
        }
        return "\n".join(
            (
                *(f"#define {name} {value}" for name, value in defined.items()),
                *((FOLDER / name).read_text("utf-8") for name in ("trace.cu", "mlp_sizes.cu")),
                slope,
                movers(step),
                (FOLDER / "mlp.cu").read_text("utf-8"),
            )
        )


def _up(number: int, to: int) -> int:
    return -(-number // to) * to


def _stride(numbers: int) -> int:
    """Return the stride as mlp.cu computes it."""
    return (numbers + 23) // 32 * 32 + 8
