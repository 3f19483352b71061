"""Error sums of vehicles that count for shares of themselves, with numbers worked out by hand."""

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedwatt.deploy.error_vectors import (
    judged_errors,
    judging_layout,
    judging_values,
    strata_errors,
    strata_layout,
    strata_values,
)
from fedwatt.metrics import ErrorSums

ONE = ErrorSums(windows=100, squared_wh2=400.0, absolute_wh=150.0)  # an RMSE of 2
OTHER = ErrorSums(windows=300, squared_wh2=10_800.0, absolute_wh=1500.0)  # and of 6


def total(layout, *values) -> dict:
    words = np.zeros(layout.length, dtype=np.uint64)
    for own in values:
        words += layout.encode(own)
    return layout.decode(words)


def test_shares_weigh_vehicles_and_leave_their_errors_as_they_are() -> None:
    layout = judging_layout(2)
    sums = total(layout, judging_values(ONE, ONE, 10, 0.9), judging_values(OTHER, OTHER, 30, 1.1))
    found = judged_errors(sums, 2)
    # (0.9 · 400 + 1.1 · 10,800) / (0.9 · 100 + 1.1 · 300) = 12,240 / 420
    assert found.test.rmse == pytest.approx((12_240 / 420) ** 0.5)
    assert found.macro == pytest.approx((0.9 * 2 + 1.1 * 6) / 2.0)
    assert found.weighted == pytest.approx((10 * 2 + 30 * 6) / 40)  # by training windows
    assert (found.mean_windows, found.vehicles) == (20.0, 2)


def test_whole_vehicles_add_up_to_whole_counts() -> None:
    sums = total(strata_layout(2), strata_values({"all": ONE}), strata_values({"all": OTHER}))
    assert strata_errors(sums)["all"].windows == 400
    few = total(strata_layout(1), strata_values({"all": ErrorSums(windows=1)}, 0.93))
    assert strata_errors(few)["all"].windows == 1  # no stratum vanishes by a share
