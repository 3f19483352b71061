"""Median and trimmed mean, weight by weight."""

import pytest
import torch

from fedwatt.errors import SettingError
from fedwatt.methods.coordinatewise import Median, TrimmedMean, trimmed_mean
from tests.methods.replies import normal, step


def test_median_by_hand() -> None:
    # Windows do not count: a vehicle that claims a million of them has one vote.
    odd = [[1.0, -4.0], [5.0, 2.0], [3.0, -9.0]]
    assert step(Median(), odd, [1e6, 1.0, 1.0]).tolist() == [3.0, -4.0]
    assert step(Median(), [*odd, [-7.0, 0.0]]).tolist() == [2.0, -2.0]


@pytest.mark.parametrize("count", [1, 2])
def test_median_of_one_or_two_is_their_mean(count: int) -> None:
    deltas = normal(count, 20)
    assert torch.equal(step(Median(), deltas), deltas.sum(dim=0) / count)


def test_trimmed_mean_by_hand() -> None:
    deltas = [[-100.0], [1.0], [2.0], [6.0], [50.0]]
    assert step(TrimmedMean(trim=0.2), deltas, [9, 1, 1, 1, 9]).item() == 3.0
    assert step(TrimmedMean(trim=0.19), deltas).item() == -41 / 5  # ⌊0.95⌋ = 0


def test_the_floor_is_that_of_the_exact_product() -> None:
    # 0.29 · 100 is 28.999999999999996 in floating point: 29 are dropped at either end, not 28.
    squares = torch.arange(100).double()[:, None] ** 2
    assert trimmed_mean(squares, 0.29).item() == squares[29:71].mean().item()


def test_without_trimming_it_is_the_uniform_mean() -> None:
    deltas = normal(6, 20)
    # Summed in another order: equal up to the rounding of float64.
    torch.testing.assert_close(step(TrimmedMean(trim=0), deltas), deltas.mean(dim=0))


@pytest.mark.parametrize("count", [3, 5, 9])
def test_trimming_all_but_one_is_the_median(count: int) -> None:
    deltas = normal(count, 20)
    most = (count - 1) / 2 / count
    assert torch.equal(step(TrimmedMean(trim=most), deltas), step(Median(), deltas))


@pytest.mark.parametrize("defence", [Median(), TrimmedMean(trim=0.4)])
def test_liars_cannot_leave_the_range_of_the_honest(defence) -> None:
    honest = normal(3, 40)
    liars = torch.stack([torch.full((40,), 1e12), torch.full((40,), -1e12)]).double()
    here = step(defence, torch.cat([honest, liars]))
    same_side = step(defence, torch.cat([honest, liars.abs()]))
    for moved in (here, same_side):
        assert (moved >= honest.amin(dim=0)).all()
        assert (moved <= honest.amax(dim=0)).all()


def test_half_is_too_much() -> None:
    with pytest.raises(SettingError, match=r"trim must be in \[0, 0.5\)"):
        TrimmedMean(trim=0.5)
