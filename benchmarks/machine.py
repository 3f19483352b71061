"""The machine of a benchmark, and its speed in matrix products."""

import os
import platform
from collections.abc import Callable
from pathlib import Path

import torch


def machine() -> dict[str, str | int]:
    """Processor, cores, threads and versions, to stand beside every absolute time."""
    return {
        "processor": processor(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.platform(terse=True),
    }


def processor() -> str:
    """Name of the processor, as the system gives it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


GEMM_SIZE = 1024
GEMM_FLOPS = 4 * 2 * GEMM_SIZE**3


def gemm() -> Callable[[], None]:
    """Return a function that does `GEMM_FLOPS` operations in square float32 products."""
    a = torch.randn(GEMM_SIZE, GEMM_SIZE)
    b = torch.randn(GEMM_SIZE, GEMM_SIZE)
    out = torch.empty_like(a)

    def once() -> None:
        for _ in range(4):
            torch.mm(a, b, out=out)

    return once
