"""recurrent.cu, compiled for a processor with a thread for each of a GPU's, beside through_time.

What a GPU itself makes of it: tests/federation/test_recorded.py.
"""

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedwatt.models import GRU, LSTM
from fedwatt.models.loss import huber, squared
from fedwatt.models.recurrent_gpu import SOURCE, TILE, WholeWindow
from fedwatt.native import compiled
from fedwatt.nvrtc import as_c

HERE = Path(__file__).parent
BEFORE, AFTER = (
    HERE.joinpath(name).read_text() for name in ("blocks_of_threads.c", "launch_recurrent.c")
)

pytestmark = pytest.mark.skipif(compiled("") is None, reason="no C compiler")


@dataclass(frozen=True)
class Launch:
    """A kernel's `Launch` on this processor."""

    function: ctypes._CFuncPtr

    def __call__(self, blocks: tuple[int, int], threads: int, *arguments) -> None:
        assert self.function(*map(as_c, arguments), *blocks) == blocks[0] * blocks[1]


def on_threads(model: GRU | LSTM, dtype: torch.dtype) -> WholeWindow:
    library = compiled(BEFORE + model.cell.source(dtype) + AFTER)
    assert library is not None
    names = ("forward", "backward")
    return WholeWindow(
        model.cell, {name: Launch(getattr(library, f"launch_{name}")) for name in names}
    )


def drawn(
    model: GRU | LSTM, vehicles: int, batch: int, seconds: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(weights, windows, labels, shares)."""
    rng = np.random.default_rng(1)
    weights = torch.stack([model.initial(rng) for _ in range(vehicles)])
    windows, labels, share = (
        torch.from_numpy(rng.standard_normal((vehicles, batch, *more)))
        for more in ((seconds, model.features), (), ())
    )
    return tuple(values.to(dtype) for values in (weights, windows, labels, share.abs()))


MODELS = [GRU(3, 5), LSTM(3, 5), GRU(1, 1), LSTM(9, 2), GRU(8, 32), LSTM(8, 32)]


@pytest.mark.parametrize("batch", [1, TILE, TILE + 3])  # a part of a tile, a tile, one and a part
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_gradient_is_that_of_through_time(model: GRU | LSTM, batch: int) -> None:
    weights, windows, labels, share = drawn(model, 2, batch, 4)
    found = torch.full_like(weights, torch.nan)
    on_threads(model, torch.float64).fill(
        labels,
        share,
        layout=model.layout,
        weights=weights,
        windows=windows,
        gradient=found,
        loss=huber,
    )
    expected = model.gradient(weights, windows, labels, share, huber)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("model", [GRU(8, 32), LSTM(8, 32)], ids=str)
def test_float32_is_as_close_as_rounding_allows(model: GRU | LSTM) -> None:
    weights, windows, labels, share = drawn(model, 1, 6, 60, torch.float32)
    found = torch.empty_like(weights)
    on_threads(model, torch.float32).fill(
        labels,
        share,
        layout=model.layout,
        weights=weights,
        windows=windows,
        gradient=found,
        loss=squared,
    )
    doubles = (values.double() for values in (weights, windows, labels, share))
    exact = model.gradient(*doubles, squared)
    assert (found - exact).abs().max() < 1e-5 * exact.abs().max()


@pytest.mark.parametrize("model", [GRU(3, 5), LSTM(3, 5)], ids=str)
def test_state_with_any_leading_axes_and_its_slope(model: GRU | LSTM) -> None:
    weights, windows, _, _ = drawn(model, 6, 3, 4)
    own = weights[:, : model.cell.size].view(2, 3, -1).requires_grad_()
    shared = windows[0]  # all six read the same windows, which lie in one place
    found = on_threads(model, torch.float64).last_state(own, shared)
    whole = torch.cat([own, weights[:, model.cell.size :].view(2, 3, -1)], dim=-1)
    expected = model.represent(model.layout.split(whole), shared.expand(2, 3, -1, -1, -1))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    pull = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view_as(found)
    (slope,) = torch.autograd.grad((found * pull).sum(), own, retain_graph=True)
    (true,) = torch.autograd.grad((expected * pull).sum(), own)
    torch.testing.assert_close(slope, true, rtol=1e-12, atol=1e-14)


def test_windows_that_lie_otherwise_are_read_right() -> None:
    model = GRU(3, 5)
    weights, windows, _, _ = drawn(model, 2, 3, 4)
    whole, own = on_threads(model, torch.float64), weights[:, : model.cell.size]
    turned = windows.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(whole.last_state(own, turned), whole.last_state(own, windows))


def test_no_windows_at_all() -> None:
    model = GRU(3, 5)
    weights, windows, _, _ = drawn(model, 2, 3, 4)
    found = on_threads(model, torch.float64).last_state(
        weights[:, : model.cell.size], windows[:, :0]
    )
    assert found.shape == (2, 0, 5)


def test_python_and_cuda_agree_on_the_tile() -> None:
    assert f"TILE = {TILE}," in SOURCE.read_text()
