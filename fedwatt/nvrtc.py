"""CUDA C that is compiled when it is first needed, where an NVIDIA GPU is used.

torch brings NVRTC, NVIDIA's compiler as a library, so no toolkit has to be installed. A source
takes it about a second, once in a process. As with `native`, torch does the work where this is
missing.
"""

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor


class Launch(Protocol):
    """A kernel: (blocks in x and y, threads of a block, arguments) → nothing, on `tensors`' GPU.

    Tensors become pointers, None a null pointer and whole numbers `long long`.
    """

    def __call__(
        self, blocks: tuple[int, int], threads: int, *arguments: Tensor | int | None
    ) -> None:
        """Queue it behind what the GPU was told before."""


class Kernel:
    """One function of a compiled source on one GPU."""

    def __init__(self, driver: ctypes.CDLL, function: ctypes.c_void_p, device: int) -> None:
        self.driver, self.function, self.device = driver, function, device

    def __call__(
        self, blocks: tuple[int, int], threads: int, *arguments: Tensor | int | None
    ) -> None:
        """See `Launch`."""
        values = [as_c(argument) for argument in arguments]
        places = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values)
        )
        with torch.cuda.device(self.device):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            size = (*blocks, 1, threads, 1, 1)
            fault = self.driver.cuLaunchKernel(
                self.function, *map(ctypes.c_uint, size), ctypes.c_uint(0), stream, places, None
            )
        if fault:
            raise RuntimeError(f"The GPU refused a kernel (CUDA error {fault}).")


def as_c(argument: Tensor | int | None) -> Any:
    """An argument as C takes it; a tensor must outlive the call."""
    if isinstance(argument, int):
        return ctypes.c_longlong(argument)
    return ctypes.c_void_p(None if argument is None else argument.data_ptr())


@cache
def cuda_kernels(source: str, names: tuple[str, ...], device: int) -> Mapping[str, Launch] | None:
    """The kernels `names` of `source` for one GPU; None where they cannot be compiled."""
    compiler = _nvrtc()
    major, minor = torch.cuda.get_device_capability(device)
    binary = compiler and _compiled(compiler, source, f"sm_{major}{minor}")
    if binary is None:
        return None
    driver, module = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # makes this GPU's context the current one
        if driver.cuModuleLoadData(ctypes.byref(module), binary):
            return None
    found = {}
    for name in names:
        function = ctypes.c_void_p()
        if driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()):
            return None
        found[name] = Kernel(driver, function, device)
    return found


def _nvrtc() -> ctypes.CDLL | None:
    # torch has loaded it already, from wherever it lies, so that its name is enough.
    version = str(torch.version.cuda).partition(".")[0]
    with suppress(OSError):
        return ctypes.CDLL(f"libnvrtc.so.{version}")
    return None


def _compiled(compiler: ctypes.CDLL, source: str, architecture: str) -> bytes | None:
    """Machine code of `source`, or None where the compiler does not take it."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    compiler.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"fedwatt.cu", 0, None, None
    )
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    try:
        if compiler.nvrtcCompileProgram(program, len(options), options):
            return None
        compiler.nvrtcGetCUBINSize(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        compiler.nvrtcGetCUBIN(program, code)
        return code.raw
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))
