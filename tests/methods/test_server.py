"""Sums of replies, in pieces."""

import pytest
import torch

from fedwatt.methods.server import weighted_sum


@pytest.mark.parametrize("count", [1, 2, 9, 30, 200])
@pytest.mark.parametrize("size", [5, 485, 4001, 32897])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_sum_in_pieces_has_the_bits_of_one(count: int, size: int, dtype: torch.dtype) -> None:
    drawn = torch.Generator().manual_seed(count * size)
    vectors = torch.randn((count, size), generator=drawn, dtype=dtype)
    weights = torch.rand(count, generator=drawn, dtype=torch.float64)
    total = (vectors.double() * weights[:, None]).sum(dim=0)
    assert torch.equal(weighted_sum(weights, vectors), total)
