"""An MLP on lines through its weights, in C and in torch, against one forward pass a point."""

from itertools import product
from math import inf, nan

import numpy as np
import pytest
import torch
from torch import Tensor

from fedwatt.engine.kernels import c_compiler, lines
from fedwatt.models import MLP
from tests.engine.kernels.compilers import compiling_with

LIBRARY = c_compiler.compiled(lines.SOURCE.read_text("utf-8"))
compiler_needed = pytest.mark.skipif(LIBRARY is None, reason="no C compiler")
WAYS = [pytest.param("c", marks=compiler_needed), "torch"]
both_ways = pytest.mark.parametrize("way", WAYS)


def followed(
    way: str, model: MLP, weights: Tensor, directions: Tensor, offsets: Tensor, windows: Tensor
) -> Tensor:
    inputs = (model.layout, weights, directions, offsets, windows.flatten(-2))
    if way == "torch":
        return lines.by_torch(*inputs)
    assert LIBRARY is not None
    return lines.by_compiler(LIBRARY, *inputs)


def naive(
    model: MLP, weights: Tensor, directions: Tensor, offsets: Tensor, windows: Tensor
) -> Tensor:
    points = [model.predict(weights + s * d, windows) for d, s in product(directions, offsets)]
    return torch.stack(points).view(len(directions), len(offsets), -1)


def drawn(
    model: MLP, *, batch: int, count: int = 3, seed: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """(weights, directions, windows)."""
    rng = np.random.default_rng(seed)
    shapes = ((count, model.layout.size), (batch, model.window, model.features))
    return model.initial(rng), *(torch.from_numpy(rng.standard_normal(s)) for s in shapes)


@both_ways
@pytest.mark.parametrize("reach", [1e-4, 0.05, 2.0])
@pytest.mark.parametrize("batch", [1, 6, 131])  # a row, a tile and a half, a block and a bit
@pytest.mark.parametrize(
    "hidden",
    [(1,), (3,), (17,), (1, 1), (17, 3), (3, 17), (64, 32), (3, 1, 17), (17, 17, 3), (5, 4, 3, 2)],
    ids=str,
)
def test_every_shape_equals_forward_passes(
    way: str, hidden: tuple[int, ...], batch: int, reach: float
) -> None:
    # No unit switches on the shortest line, a few do on the next, nearly all on the longest.
    model = MLP(7, 3, hidden)
    weights, directions, windows = drawn(model, batch=batch)
    offsets = torch.linspace(-reach, reach, 9).double()
    predictions = followed(way, model, weights, directions, offsets, windows)
    expected = naive(model, weights, directions, offsets, windows)
    # The longest line reaches weights, and with four layers powers of them, far above 1.
    torch.testing.assert_close(predictions, expected, rtol=1e-11, atol=1e-11)


@both_ways
def test_more_points_and_switching_units_than_are_followed_at_once(way: str) -> None:
    # C follows 128 points at a time and collects 128 rows, two for each unit that switches.
    model = MLP(5, 2, (150, 9))
    weights, directions, windows = drawn(model, batch=4)
    offsets = torch.linspace(-3.0, 5.0, 261).double()
    predictions = followed(way, model, weights, directions, offsets, windows)
    expected = naive(model, weights, directions, offsets, windows)
    torch.testing.assert_close(predictions, expected, rtol=1e-11, atol=1e-11)


@compiler_needed
@pytest.mark.parametrize("bad", [nan, inf, -inf])
@pytest.mark.parametrize("place", ["hidden1.weight", "hidden2.weight", "output.weight", "windows"])
@pytest.mark.parametrize("reach", [1e-4, 2.0])
def test_what_is_not_finite_is_lost_in_c_as_in_torch(bad: float, place: str, reach: float) -> None:
    model = MLP(7, 3, (17, 5))
    weights, directions, windows = drawn(model, batch=6)
    parts = {"windows": windows, **model.layout.split(weights)}
    parts[place].view(-1)[1] = bad
    offsets = torch.linspace(-reach, reach, 9).double()
    result, expected = (
        followed(way, model, weights, directions, offsets, windows) for way in ("c", "torch")
    )
    assert not expected.isfinite().all()
    assert torch.equal(result.isfinite(), expected.isfinite())
    remaining = expected.isfinite()
    torch.testing.assert_close(result[remaining], expected[remaining], rtol=1e-11, atol=1e-11)


@compiler_needed
def test_a_line_in_c_is_the_same_alone_and_among_others() -> None:
    model = MLP(60, 8)
    weights, directions, windows = drawn(model, batch=150, count=5)
    directions /= directions.norm(dim=-1, keepdim=True)
    offsets = torch.linspace(-0.01, 0.01, 11).double()
    together = followed("c", model, weights, directions, offsets, windows)
    alone = followed("c", model, weights, directions[3:4], offsets, windows[140:])
    assert torch.equal(together[3:4, :, 140:], alone)


@compiler_needed
def test_c_is_used_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    for name in ("by_compiler", "by_torch"):
        way = getattr(lines, name)
        monkeypatch.setattr(
            lines, name, lambda *inputs, n=name, w=way: used.append(n) or w(*inputs)
        )
    model = MLP(7, 3, (5, 4))
    weights, directions, windows = drawn(model, batch=6)
    offsets = torch.linspace(-0.1, 0.1, 5).double()
    # Directions of a larger model, of which the first weights are this one's, have gaps.
    wide = torch.cat([directions, directions], dim=-1)[:, : model.layout.size]
    first = model.along(weights, directions, offsets, windows)
    assert torch.equal(first, model.along(weights, wide, offsets, windows))
    assert used == ["by_compiler", "by_compiler"]
    single = (each.float() for each in (weights, directions, offsets, windows))
    assert model.along(*single).dtype == torch.float32
    assert model.along(weights.requires_grad_(), directions, offsets, windows).requires_grad
    with torch.no_grad():
        model.along(weights, directions, offsets, windows)
    assert used[2:] == ["by_torch", "by_torch", "by_compiler"]
    with pytest.raises(RuntimeError):  # C would read beyond the windows
        model.along(weights, directions, offsets, windows[:, :5])


def test_torch_steps_in_without_a_compiler() -> None:
    model = MLP(7, 3, (5, 4))
    weights, directions, windows = drawn(model, batch=6)
    offsets = torch.linspace(-0.1, 0.1, 5).double()
    with compiling_with("no-such-compiler"):
        predictions = model.along(weights, directions, offsets, windows)
    expected = followed("torch", model, weights, directions, offsets, windows)
    assert torch.equal(predictions, expected)
