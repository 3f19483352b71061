"""Errors worked out by hand.

Vehicle A predicts 13, 2, -8 for labels 10, 4, -12: errors +3, -2, +4.
Vehicle B predicts 105 for 100: error +5.
"""

from dataclasses import asdict, replace
from math import isnan, nan, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from fedwatt.errors import DataError
from fedwatt.metrics import METRICS, SUMS, ErrorSums, Metric, macro_mean, micro, weighted_mean

A = ErrorSums.of([13.0, 2.0, -8.0], [10.0, 4.0, -12.0])
B = ErrorSums.of([105.0], [100.0])


def test_sums_of_a_vehicle():
    expected = {
        "windows": 3,
        "squared_wh2": 9 + 4 + 16,
        "absolute_wh": 9.0,
        # |Y| + 1 Wh below each error; the label of -12 counts by its size.
        "percentage": 3 / 11 + 2 / 5 + 4 / 13,
        "label_wh": 26.0,
        "near_zero": 1,
    }
    assert {name: asdict(A)[name] for name in expected} == approx(expected)


def test_errors_of_a_vehicle():
    assert A.rmse == approx(sqrt(29 / 3))
    assert A.mae == approx(3.0)
    assert A.mape == approx(100 / 3 * (3 / 11 + 2 / 5 + 4 / 13))
    assert A.wmape == approx(100 * 9 / 26)
    assert METRICS["near_zero"].value(A) == approx(1 / 3)


def test_sums_travel_as_an_array():
    row = A.as_array()
    assert row[:6].tolist() == approx([3, 29, 9, 3 / 11 + 2 / 5 + 4 / 13, 26, 1])
    assert len(row) == len(SUMS)
    back = ErrorSums.from_array(row)
    assert back == A and type(back.windows) is int and type(back.near_zero) is int


@pytest.mark.parametrize("wrong", [-1.0, nan])
def test_sums_that_cannot_be_are_refused(wrong):
    row = A.as_array()
    row[1] = wrong
    with pytest.raises(DataError, match="finite and not below 0"):
        ErrorSums.from_array(row)


def test_a_metric_that_divides_by_zero_is_unknown():
    metric = Metric("Ratio", "", "squared over absolute", lambda e: e.squared_wh2 / e.absolute_wh)
    assert metric.value(A) == approx(29 / 9)
    assert isnan(metric.value(ErrorSums()))


def test_near_zero_is_below_the_threshold_on_both_sides():
    assert ErrorSums.of(np.zeros(4), [-4.9, 4.9, 5.0, -5.0]).near_zero == 2


def test_label_of_zero_is_divided_by_epsilon():
    assert ErrorSums.of([3.0], [0.0]).mape == approx(300.0)
    assert isnan(ErrorSums.of([3.0], [0.0]).wmape)


def test_micro_pools_windows():
    pooled = micro([A, B])
    assert pooled.windows == 4
    assert pooled.rmse == approx(sqrt((29 + 25) / 4))
    assert pooled.mae == approx(14 / 4)
    assert pooled.wmape == approx(100 * 14 / 126)


def test_macro_and_weighted_means_over_vehicles():
    values = [A.rmse, B.rmse]
    assert macro_mean(values) == approx((sqrt(29 / 3) + 5) / 2)
    assert weighted_mean(values, [1, 3]) == approx((sqrt(29 / 3) + 15) / 4)


def test_vehicle_without_windows_counts_nowhere():
    nothing = ErrorSums.of([], [])
    for value in (
        nothing.rmse,
        nothing.mae,
        nothing.mape,
        nothing.wmape,
        METRICS["near_zero"].value(nothing),
    ):
        assert isnan(value)
    assert micro([A, nothing]) == A
    assert macro_mean([2.0, nothing.rmse]) == 2.0
    assert weighted_mean([2.0, nothing.rmse], [1, 99]) == 2.0
    assert isnan(macro_mean([nan])) and isnan(macro_mean([]))
    assert isnan(micro([]).rmse)


def test_non_finite_prediction_shows():
    assert isnan(ErrorSums.of([nan], [1.0]).rmse)
    assert ErrorSums.of([np.inf], [1.0]).rmse == np.inf


@pytest.mark.parametrize("predicted", [[[1.0], [2.0]], [1.0]])
def test_other_shape_is_refused(predicted):
    with pytest.raises(ValueError, match="both be"):
        ErrorSums.of(predicted, [1.0, 2.0])


energies = st.floats(-500, 500)


@given(st.lists(st.tuples(energies, energies), min_size=1), st.data())
def test_any_cut_of_the_windows_gives_the_same_errors(windows, data):
    predicted, label = map(list, zip(*windows, strict=True))
    cut = data.draw(st.integers(0, len(windows)))
    parts = ErrorSums.of(predicted[:cut], label[:cut]) + ErrorSums.of(predicted[cut:], label[cut:])
    complete = ErrorSums.of(predicted, label)
    # Only the order of float64 additions differs.
    assert asdict(parts) == approx(asdict(complete), rel=1e-9, abs=1e-9)
    # Below 1e-150 Wh the square of an error is 0.
    assert complete.mae <= complete.rmse * (1 + 1e-12) + 1e-150


def test_a_sum_below_0_is_named_unless_it_may_be_so() -> None:
    class Signed(ErrorSums):
        signed = frozenset({"label_wh"})

    row = ErrorSums(2, 10.0, 4.0, 0.5, -90.0, 1).as_array()
    with pytest.raises(DataError, match="'label_wh' is -90"):
        ErrorSums.from_array(row)
    assert Signed.from_array(row).label_wh == -90.0
    with pytest.raises(DataError, match="'near_zero' is nan"):
        Signed.from_array(replace(ErrorSums(2, 10.0, 4.0, 0.5, 90.0), near_zero=nan).as_array())
