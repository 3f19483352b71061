"""Krum and Multi-Krum on replies small enough to score by hand."""

import pytest
import torch

from fedwatt.errors import SettingError
from fedwatt.methods.krum import Krum, MultiKrum, krum_scores
from fedwatt.methods.server import mean_delta
from tests.methods.replies import normal, replies_of, step


def test_scores_by_hand() -> None:
    # N = 6, f = 1: the three nearest others of each reply, squared.
    deltas = torch.tensor([[-2.0], [-1.0], [0.0], [1.0], [3.0], [10.0]])
    expected = [1 + 4 + 9, 1 + 1 + 4, 1 + 1 + 4, 1 + 4 + 4, 4 + 9 + 16, 49 + 81 + 100]
    assert krum_scores(deltas, 1).tolist() == expected


def test_krum_takes_the_reply_in_the_thick_of_it() -> None:
    # Replies 1 and 2 both score 6; the first of them wins, with its own displacement unchanged.
    assert step(Krum(), [[-2.0], [-1.0], [0.0], [1.0], [3.0], [10.0]]).item() == -1.0


def test_a_reply_is_not_its_own_neighbour() -> None:
    # Two equal liars of N = 7, f = 2 (three neighbours): counting oneself would give them two
    # neighbours for free and the score (0 + 0 + 99²) still loses, but honest scores would change.
    deltas = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0], [100.0], [100.0]])
    scores = krum_scores(deltas, 2).tolist()
    assert scores[2] == 1 + 1 + 4
    assert scores[5] == scores[6] == 0 + 96**2 + 97**2


def test_nearly_equal_replies_keep_their_order() -> None:
    # ‖x‖² + ‖y‖² - 2x·y loses these differences at 1e8; by differences they are exact in float64.
    deltas = 1e8 + torch.tensor([[0.0], [1.0], [2.0], [3.0], [7.0]], dtype=torch.float64)
    assert krum_scores(deltas, 1).tolist() == [5.0, 2.0, 2.0, 5.0, 41.0]


def test_multi_krum_averages_by_windows() -> None:
    deltas = [[-2.0], [-1.0], [0.0], [1.0], [3.0], [10.0]]
    windows = [1.0, 1.0, 3.0, 4.0, 1.0, 9.0]
    # The three lowest scores are 6, 6 and 9: replies -1, 0 and 1.
    assert step(MultiKrum(keep=3), deltas, windows).item() == (-1 + 0 + 4) / 8
    # By default N - 2f - 2 = 2 of them.
    assert step(MultiKrum(), deltas, windows).item() == -1 / 4


def test_multi_krum_that_keeps_all_is_the_mean() -> None:
    deltas = normal(7, 50)
    windows = [float(k + 1) for k in range(7)]
    everybody = step(MultiKrum(byzantine=0, keep=7), deltas, windows)
    assert torch.equal(everybody, mean_delta(replies_of(deltas, windows)))


@pytest.mark.parametrize("liars", [1, 2])
def test_krum_never_takes_a_far_reply(liars: int) -> None:
    honest = normal(7 - liars, 3)
    deltas = torch.cat([torch.full((liars, 3), 1e12, dtype=torch.float64), honest])
    assert (step(Krum(byzantine=2), deltas) == honest).all(dim=-1).any()


def test_too_few_replies_are_refused_with_the_numbers() -> None:
    with pytest.raises(SettingError, match=r"Krum\(byzantine=1\) needs at least 5 replies.* 4\."):
        step(Krum(), normal(4, 2))
    with pytest.raises(SettingError, match=r"needs at least 8 replies"):
        step(MultiKrum(byzantine=2, keep=6), normal(7, 2))
    with pytest.raises(SettingError, match="at least 0"):
        Krum(byzantine=-1)
