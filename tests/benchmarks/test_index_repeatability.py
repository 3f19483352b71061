"""The share of variance between vehicles, on numbers worked out by hand."""

import numpy as np
from pytest import approx

from benchmarks.index_repeatability import REPEATS, icc


def test_repeats_that_agree_are_all_between_vehicles() -> None:
    values = np.tile([1.0, 2.0, 4.0], (REPEATS, 1)) + 1e-9 * np.arange(REPEATS)[:, None]
    share, low, _ = icc([values])
    assert share == approx(1.0, abs=1e-6)
    assert low > 0.999


def test_a_share_worked_out_by_hand() -> None:
    # Two vehicles with means ±1; each repeat is off by ±1. Between: 8·(1 + 1)/1 = 16. Within:
    # 16·1/14. Their ratio is 14, so the share is 13/21.
    off = np.where(np.arange(REPEATS) % 2, 1.0, -1.0)[:, None]
    share, low, high = icc([np.array([[-1.0, 1.0]]) + off])
    assert share == approx(13 / 21, abs=1e-12)
    assert low < share < high


def test_splits_are_pooled_about_their_own_means() -> None:
    off = np.where(np.arange(REPEATS) % 2, 1.0, -1.0)[:, None]
    values = np.array([[-1.0, 1.0]]) + off
    assert icc([values, values + 100])[0] == approx(13 / 21, abs=1e-12)
