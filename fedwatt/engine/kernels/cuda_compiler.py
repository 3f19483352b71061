"""CUDA C that is compiled when it is first needed, where an NVIDIA GPU is used.

torch brings NVRTC, NVIDIA's compiler as a library, so no toolkit has to be installed. A source
takes it a second or a few, once in a process. As with `native`, torch does the work where there is
no compiler.
"""

import ctypes
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

import torch
from torch import Tensor

MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Launch(Protocol):
    """A kernel: (blocks in x and y, threads of a block, arguments) → nothing.

    Tensors become pointers, None a null pointer and whole numbers `long long`.
    """

    def __call__(
        self, blocks: tuple[int, int], threads: int, *arguments: Tensor | int | None
    ) -> None:
        """Queue the kernel on the current stream."""


class CudaFunction:
    """One function of a compiled source on one GPU."""

    def __init__(
        self,
        driver: ctypes.CDLL,
        function: ctypes.c_void_p,
        context: ctypes.c_void_p,
        device: int,
        shared: int,
    ) -> None:
        self.driver = driver
        self.function = function
        self.context = context
        self.device = device
        self.shared = shared

    def __call__(
        self, blocks: tuple[int, int], threads: int, *arguments: Tensor | int | None
    ) -> None:
        """Launch the kernel (see `Launch`)."""
        values = [as_c(argument) for argument in arguments]
        places = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values)
        )
        stream = ctypes.c_void_p(torch.cuda.current_stream(self.device).cuda_stream)
        size = (*blocks, 1, threads, 1, 1)
        # A thread in which torch has not used the GPU yet, such as autograd's, has no context.
        self.driver.cuCtxSetCurrent(self.context)
        fault = self.driver.cuLaunchKernel(
            self.function, *map(ctypes.c_uint, (*size, self.shared)), stream, places, None
        )
        if fault:
            raise RuntimeError(
                f"The GPU refused {blocks[0]} x {blocks[1]} blocks of {threads} threads (CUDA "
                f"error {fault})."
            )


def as_c(argument: Tensor | int | None) -> Any:
    """Return an argument as C takes it; a tensor must outlive the call."""
    if isinstance(argument, int):
        return ctypes.c_longlong(argument)
    return ctypes.c_void_p(None if argument is None else argument.data_ptr())


def cuda_kernels(
    source: str, names: tuple[str, ...], device: int, *, shared: int = 0
) -> Mapping[str, Launch] | None:
    """Return the kernels `names` of `source` for one GPU; None where there is no compiler.

    A block of threads gets `shared` bytes of shared memory besides what the source declares. Where
    there is a compiler that does not take the source, or the GPU not its code, a warning says why.
    """
    compiler = _nvrtc()
    if compiler is None:
        return None
    major, minor = torch.cuda.get_device_capability(device)
    try:
        binary = machine_code(compiler, source, f"sm_{major}{minor}")
        return _loaded(binary, names, device, shared)
    except RuntimeError as problem:
        warnings.warn(f"A kernel is left to torch, which is slower: {problem}", stacklevel=2)
        return None


def _nvrtc() -> ctypes.CDLL | None:
    # torch has loaded it already, from wherever it lies, so that its name is enough.
    version = str(torch.version.cuda).partition(".")[0]
    with suppress(OSError):
        return ctypes.CDLL(f"libnvrtc.so.{version}")
    return None


def machine_code(compiler: ctypes.CDLL, source: str, architecture: str) -> bytes:
    """Compile `source` with NVRTC; raise RuntimeError with the compiler's message if that fails."""
    program = ctypes.c_void_p()
    size = ctypes.c_size_t()
    compiler.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"fedwatt.cu", 0, None, None
    )
    # Functions need not say that they are for a GPU: there are no others.
    flags = (f"--gpu-architecture={architecture}".encode(), b"--device-as-default-execution-space")
    options = (ctypes.c_char_p * len(flags))(*flags)
    try:
        if compiler.nvrtcCompileProgram(program, len(options), options):
            compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            words = ctypes.create_string_buffer(size.value)
            compiler.nvrtcGetProgramLog(program, words)
            raise RuntimeError(f"NVRTC says {words.value.decode(errors='replace').strip()}")
        compiler.nvrtcGetCUBINSize(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        compiler.nvrtcGetCUBIN(program, code)
        return code.raw
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))


def _loaded(
    binary: bytes, names: tuple[str, ...], device: int, shared: int
) -> Mapping[str, Launch]:
    driver = ctypes.CDLL("libcuda.so.1")
    module = ctypes.c_void_p()
    context = ctypes.c_void_p()

    def checked(fault: int, what: str) -> None:
        if fault:
            raise RuntimeError(f"the GPU does not {what} (CUDA error {fault})")

    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # makes this GPU's context the current one
        checked(driver.cuCtxGetCurrent(ctypes.byref(context)), "tell its context")
        checked(driver.cuModuleLoadData(ctypes.byref(module), binary), "take its code")
    functions = {}
    for name in names:
        function = ctypes.c_void_p()
        status = driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        checked(status, f"find '{name}' in it")
        if shared:
            attribute_status = driver.cuFuncSetAttribute(
                function, MAX_DYNAMIC_SHARED, ctypes.c_int(shared)
            )
            checked(attribute_status, f"give '{name}' {shared} bytes of shared memory")
        functions[name] = CudaFunction(driver, function, context, device, shared)
    return functions
