"""recurrent.cu, compiled for a processor with a thread for each of a GPU's, beside autograd.

Whole trainings on a GPU: tests/engine/test_gpu.py.
"""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedwatt.engine.kernels import recurrent
from fedwatt.engine.kernels.c_compiler import compiled
from fedwatt.engine.kernels.cuda_compiler import as_c
from fedwatt.engine.kernels.recurrent_gpu import TILE, CellShape, WholeWindow, fits, whole_window
from fedwatt.models import GRU, LSTM
from fedwatt.models.model import huber, squared

HERE = Path(__file__).parent
BEFORE, AFTER = (
    HERE.joinpath(name).read_text() for name in ("blocks_of_threads.c", "launch_recurrent.c")
)
MODELS = [GRU(3, 5), LSTM(3, 5), GRU(1, 1), LSTM(9, 2), GRU(8, 32), LSTM(8, 32)]

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")


@dataclass(frozen=True)
class Launch:
    """A kernel's `Launch` on this processor; as strict as a GPU."""

    function: ctypes._CFuncPtr
    threads: int

    def __call__(self, blocks: tuple[int, int], threads: int, *arguments) -> None:
        assert threads == self.threads and min(blocks) > 0
        assert self.function(*map(as_c, arguments), *blocks) == blocks[0] * blocks[1]


def cell_of(model: GRU | LSTM) -> CellShape:
    return CellShape(type(model).__name__, model.features, model.hidden)


def on_threads(cell: CellShape, dtype: torch.dtype) -> WholeWindow:
    library = compiled(BEFORE + cell.source(dtype) + AFTER)
    if library is None:
        pytest.skip("no C compiler that knows threads")
    launch = {
        name: Launch(getattr(library, f"launch_{name}"), 4 * cell.hidden)
        for name in ("forward", "backward")
    }
    return WholeWindow(cell, launch)


@pytest.fixture
def pretending(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Models take this processor for a GPU."""

    def whole_window(cell: CellShape, weights: Tensor, windows: Tensor) -> WholeWindow | None:
        return on_threads(cell, weights.dtype) if fits(cell, weights, windows) else None

    monkeypatch.setattr(recurrent, "whole_window", whole_window)
    return


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


def filled(model: GRU | LSTM, given: tuple[Tensor, ...], loss=huber) -> Tensor:
    """The gradient by the kernels."""
    weights, windows, labels, share = given
    result = torch.full(weights.shape, torch.nan, dtype=weights.dtype)
    on_threads(cell_of(model), weights.dtype).fill(
        labels,
        share,
        layout=model.layout,
        weights=weights,
        windows=windows,
        gradient=result,
        loss=loss,
    )
    return result


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("batch", [1, TILE, TILE + 3])  # a part of a tile, a tile, one and a part
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_gradient_is_that_of_autograd(model: GRU | LSTM, batch: int) -> None:
    inputs = drawn(model, 2, batch, 4)
    close(filled(model, inputs), model.gradient(*inputs, huber))


@pytest.mark.parametrize(("vehicles", "batch"), [(130, 1), (1, 40 * TILE)])
def test_many_vehicles_and_large_batches(vehicles: int, batch: int) -> None:
    model = LSTM(2, 1)
    inputs = drawn(model, vehicles, batch, 2)
    close(filled(model, inputs), model.gradient(*inputs, huber))


@pytest.mark.parametrize("model", [GRU(8, 32), LSTM(8, 32)], ids=str)
def test_float32_is_as_close_as_rounding_allows(model: GRU | LSTM) -> None:
    inputs = drawn(model, 1, 6, 60, torch.float32)
    exact = model.gradient(*(values.double() for values in inputs), squared)
    assert (filled(model, inputs, squared) - exact).abs().max() < 1e-5 * exact.abs().max()


@pytest.mark.parametrize("model", [GRU(3, 5), LSTM(3, 5)], ids=str)
def test_state_with_any_leading_axes_and_its_slope(model: GRU | LSTM) -> None:
    weights, windows, _, _ = drawn(model, 6, 3, 4)
    cell_weights = weights[:, : cell_of(model).size].view(2, 3, -1).requires_grad_()
    shared = windows[0]  # all six read the same windows, which lie in one place
    states = on_threads(cell_of(model), torch.float64).last_state(cell_weights, shared)
    complete = torch.cat([cell_weights, weights[:, cell_of(model).size :].view(2, 3, -1)], dim=-1)
    expected = model.represent(model.layout.split(complete), shared.expand(2, 3, -1, -1, -1))
    close(states, expected)
    # A slope of all ones is a single number that is read again and again.
    for pull in (torch.linspace(-1, 1, states.numel()).view_as(states), torch.ones(1)):
        (slope,) = torch.autograd.grad((states * pull).sum(), cell_weights, retain_graph=True)
        (true,) = torch.autograd.grad((expected * pull).sum(), cell_weights, retain_graph=True)
        close(slope, true)


def test_tensors_that_lie_otherwise_are_read_right() -> None:
    model = GRU(3, 5)
    weights, windows, labels, share = inputs = drawn(model, 2, 3, 4)
    expected = filled(model, inputs)
    columns_first = weights.T.contiguous().T
    part_of_more = torch.cat([weights, weights], dim=1)[:, : model.layout.size]
    turned = windows.transpose(1, 2).contiguous().transpose(1, 2)
    for uncopied in (columns_first, part_of_more):
        assert torch.equal(filled(model, (uncopied, windows, labels, share)), expected)
    assert torch.equal(filled(model, (weights, turned, labels, share)), expected)
    labels_across, share_across = (values.T.contiguous().T for values in (labels, share))
    assert torch.equal(filled(model, (weights, windows, labels_across, share_across)), expected)


@pytest.mark.parametrize("model", [GRU(3, 5), LSTM(3, 5)], ids=str)
def test_all_that_a_model_is_asked_for(model: GRU | LSTM, request: pytest.FixtureRequest) -> None:
    weights, windows, labels, share = drawn(model, 2, 3, 4)
    rng = np.random.default_rng(2)
    directions = torch.from_numpy(rng.standard_normal((2, model.layout.size)))
    offsets = torch.linspace(-1, 1, 5, dtype=torch.float64)

    def asked() -> list[Tensor]:
        def total(parts):
            return (model.representation(parts, windows) ** 2).sum()

        return [
            model.predict(weights, windows),
            model.predict(weights[0], windows[0]),
            model.predict(weights, windows[:, :0]),
            model.gradient(weights, windows, labels, share, huber),
            model.gradient_of(total, weights),
            model.along(weights[0], directions, offsets, windows[0]),
        ]

    expected = asked()
    request.getfixturevalue("pretending")
    for result, true in zip(asked(), expected, strict=True):
        close(result, true)


def test_what_the_kernels_cannot_do_is_left_to_torch() -> None:
    model = GRU(3, 5)
    weights, windows, _, _ = drawn(model, 2, 3, 4)
    assert fits(cell_of(model), weights, windows)
    assert not fits(cell_of(model), weights, windows.float())
    assert not fits(cell_of(model), weights.half(), windows.half())
    assert not fits(cell_of(model), weights, windows[..., :2])
    assert not fits(cell_of(model), weights, windows[:, :, :0])
    assert not fits(cell_of(model), weights, windows.clone().requires_grad_())
    assert not fits(cell_of(model), weights, windows.to("meta"))
    assert not fits(cell_of(replace(model, hidden=65)), weights, windows)
    assert whole_window(cell_of(model), weights, windows) is None  # no GPU's tensors


@pytest.mark.usefixtures("pretending")
def test_second_derivatives_are_refused() -> None:
    model = GRU(3, 5)
    weights, windows, _, _ = drawn(model, 2, 3, 4)
    weights.requires_grad_()
    (slope,) = torch.autograd.grad(
        model.predict(weights, windows).sum(), weights, create_graph=True
    )
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@on_a_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_a_gpu_takes_the_kernels(model: GRU | LSTM, dtype: torch.dtype) -> None:
    inputs = drawn(model, 2, TILE + 3, 4, dtype)
    present = [values.cuda() for values in inputs]
    assert whole_window(cell_of(model), *present[:2]) is not None
    bound = 1e-12 if dtype == torch.float64 else 1e-5
    gradients = model.gradient(*present, huber).cpu()
    expected = model.gradient(*inputs, huber)
    torch.testing.assert_close(gradients, expected, rtol=bound, atol=bound)
