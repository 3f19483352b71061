from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fedwatt.engine.kernels import cuda_compiler
from fedwatt.engine.kernels.c_compiler import compiled
from fedwatt.engine.kernels.cuda_compiler import as_c, cuda_kernels

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")

ADD = """
extern "C" __global__ void add(float *values, long long count, long long by) {
    if (threadIdx.x < count) values[threadIdx.x] += by;
}
"""


def test_arguments_become_pointers_and_whole_numbers() -> None:
    values = torch.zeros(3)
    assert as_c(values).value == values.data_ptr()
    assert as_c(None).value is None
    assert as_c(-(2**40)).value == -(2**40)


def a_driver(monkeypatch: pytest.MonkeyPatch, code: bytes = b"code") -> None:
    """A GPU that is this processor, whose compiler makes `code` of anything."""
    driver = compiled(Path(__file__).with_name("driver.c").read_text())
    if driver is None:
        pytest.skip("no C compiler")
    stream = SimpleNamespace(cuda_stream=77, synchronize=lambda: None)
    monkeypatch.setattr(cuda_compiler.ctypes, "CDLL", lambda name: driver)
    monkeypatch.setattr(cuda_compiler, "machine_code", lambda *_: code)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: stream)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


def test_the_driver_is_asked_as_it_wants_to_be(monkeypatch) -> None:
    a_driver(monkeypatch)
    kernels = cuda_kernels(ADD, ("add",), 0)
    assert kernels is not None
    values = torch.zeros(3)
    kernels["add"]((1, 2), 1, values, 2, -(2**33), None)
    assert values.tolist() == [-(2.0**33), -(2.0**33), 0.0]
    with pytest.raises(RuntimeError, match="refused 1 x 2 blocks of 1 threads"):
        kernels["add"]((1, 2), 1, values, 3, 1, None)


@pytest.mark.parametrize(
    ("code", "name", "warning"),
    [(b"other", "add", "does not take its code"), (b"code", "subtract", "find 'subtract'")],
)
def test_a_driver_that_refuses_leaves_it_to_torch(monkeypatch, code, name, warning) -> None:
    a_driver(monkeypatch, code)
    with pytest.warns(UserWarning, match=warning):
        assert cuda_kernels(ADD, (name,), 0) is None


@on_a_gpu
def test_a_kernel_writes_where_it_was_told() -> None:
    kernels = cuda_kernels(ADD, ("add",), 0)
    assert kernels is not None
    values = torch.tensor([1.0, 2.0, 3.0], device="cuda:0")
    kernels["add"]((1, 1), 32, values, 2, 5)
    assert values.tolist() == [6.0, 7.0, 3.0]


@on_a_gpu
@pytest.mark.parametrize(
    ("source", "name", "warning"),
    [("no C at all", "add", "NVRTC says"), (ADD, "subtract", "does not find 'subtract'")],
)
def test_what_cannot_be_compiled_is_left_to_torch(source: str, name: str, warning: str) -> None:
    with pytest.warns(UserWarning, match=warning):
        assert cuda_kernels(source, (name,), 0) is None
