"""Norm bounding."""

import pytest
import torch

from fedwatt.errors import SettingError
from fedwatt.methods.bounding import NormBound
from fedwatt.methods.server import mean_delta
from tests.methods.replies import normal, replies_of, step


def test_by_hand() -> None:
    # (3, -4) is 5 long and shrinks to (0.6, -0.8); (0, 0.5) stays; weights 1 and 3.
    found = step(NormBound(bound=1.0), [[3.0, -4.0], [0.0, 0.5]], [1.0, 3.0])
    torch.testing.assert_close(
        found, torch.tensor([0.15, -0.2 + 0.375], dtype=torch.float64), rtol=0, atol=1e-15
    )


def test_nothing_is_longer_than_the_bound_and_nothing_turns() -> None:
    deltas = normal(20, 8)
    bounded = NormBound(bound=2.0).screen(replies_of(deltas)).deltas
    assert bounded.norm(dim=-1).max() <= 2.0 + 1e-12
    torch.testing.assert_close(torch.cosine_similarity(bounded, deltas), torch.ones(20).double())


@pytest.mark.parametrize("bound", [1e9, float("inf")])
def test_a_bound_that_never_bites_is_the_mean(bound: float) -> None:
    deltas = torch.cat([normal(4, 8), torch.zeros(1, 8)])
    windows = [1.0, 2.0, 3.0, 4.0, 5.0]
    mean = mean_delta(replies_of(deltas, windows))
    assert torch.equal(step(NormBound(bound=bound), deltas, windows), mean)


def test_a_liar_moves_the_mean_by_its_share_of_the_bound_at_most() -> None:
    honest = torch.zeros(3, 4, dtype=torch.float64)
    liar = torch.full((1, 4), -1e12, dtype=torch.float64)
    assert step(NormBound(bound=0.4), torch.cat([honest, liar])).norm() == pytest.approx(0.1)


def test_a_bound_of_nothing_is_refused() -> None:
    with pytest.raises(SettingError, match="bound must be above 0"):
        NormBound(bound=0.0)
