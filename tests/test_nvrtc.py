import pytest
import torch

from fedwatt.nvrtc import as_c, cuda_kernels

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


@on_a_gpu
def test_a_kernel_writes_where_it_was_told() -> None:
    kernels = cuda_kernels(ADD, ("add",), 0)
    assert kernels is not None
    values = torch.tensor([1.0, 2.0, 3.0], device="cuda:0")
    kernels["add"]((1, 1), 32, values, 2, 5)
    assert values.tolist() == [6.0, 7.0, 3.0]


@on_a_gpu
@pytest.mark.parametrize(("source", "name"), [("no C at all", "add"), (ADD, "subtract")])
def test_what_cannot_be_compiled_is_left_to_torch(source: str, name: str) -> None:
    assert cuda_kernels(source, (name,), 0) is None
