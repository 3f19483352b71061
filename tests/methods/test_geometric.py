"""The geometric median and what a far reply can do to it."""

import pytest
import torch

from fedwatt.methods.geometric import GeometricMedian, geometric_median
from fedwatt.methods.server import mean_delta
from tests.methods.replies import normal, replies_of, step


def uniform(count: int) -> torch.Tensor:
    return torch.full((count,), 1 / count, dtype=torch.float64)


def test_on_a_line_it_is_the_weighted_median() -> None:
    # Three of four windows are at -1: no other point is closer to all of them.
    found = step(GeometricMedian(iterations=200, tolerance=0.0), [[-1.0], [7.0]], [3.0, 1.0])
    assert found.item() == pytest.approx(-1.0, abs=1e-4)  # smoothing 1e-5 holds it off by that


def test_of_a_square_it_is_the_middle() -> None:
    corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    found = geometric_median(corners + torch.tensor([5.0, -3.0]), uniform(4))
    torch.testing.assert_close(found, torch.tensor([5.0, -3.0], dtype=torch.float64))


def test_one_iteration_by_hand() -> None:
    # Mean of (0, 0, 0, 8) is 2; distances 2, 2, 2, 6, so the pulls are 1/2, 1/2, 1/2, 1/6:
    # (8/6) / (10/6) = 0.8.
    found = step(GeometricMedian(iterations=1), [[0.0], [0.0], [0.0], [8.0]])
    assert found.item() == pytest.approx(0.8, abs=1e-12)


def test_without_iterations_it_is_the_mean() -> None:
    deltas = normal(6, 30)
    windows = [float(k + 1) for k in range(6)]
    mean = mean_delta(replies_of(deltas, windows))
    assert torch.equal(step(GeometricMedian(iterations=0), deltas, windows), mean)
    # A smoothing larger than every distance makes all pulls equal.
    smooth = step(GeometricMedian(smoothing=1e9), deltas, windows)
    torch.testing.assert_close(smooth, mean, rtol=0, atol=1e-12)


def test_equal_replies_are_their_median() -> None:
    same = torch.full((5, 3), -0.75, dtype=torch.float64)
    torch.testing.assert_close(step(GeometricMedian(), same), same[0], rtol=0, atol=1e-15)


def test_a_liar_with_a_fifth_of_the_windows_is_held_off() -> None:
    honest = normal(4, 10)
    radius = honest.norm(dim=-1).max().item()
    deltas = torch.cat([honest, torch.full((1, 10), 1e9, dtype=torch.float64)])
    found = step(GeometricMedian(iterations=100, tolerance=0.0), deltas)
    # With a share α of wrong windows it stays within 2(1 - α)/(1 - 2α) of the honest radius.
    assert found.norm().item() <= 2 * 0.8 / 0.6 * radius


def test_each_iteration_shrinks_a_far_reply_by_its_odds() -> None:
    # Honest replies at 0, one of five at L: the mean is L/5, and v ← v/4 · L/(L - v) + ... To first
    # order in v/L every iteration multiplies v by α/(1 - α) = 1/4.
    length = 1e9
    deltas = torch.zeros(5, 1, dtype=torch.float64)
    deltas[4] = length
    path = [step(GeometricMedian(iterations=r), deltas).item() for r in (3, 4, 5)]
    assert path[1] / path[0] == pytest.approx(0.25, rel=0.01)
    assert path[2] / path[1] == pytest.approx(0.25, rel=0.01)
