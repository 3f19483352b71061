"""Windows and labels, on numbers small enough to add up by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedwatt.windows.splits import window_ends, window_means, window_sums


def test_labels_by_hand():
    energy_wh = np.array([1.0, -2.0, 4.0, 8.0, -16.0])
    ends = window_ends(5, length=3)
    assert ends.tolist() == [2, 3, 4]
    assert window_sums(energy_wh, ends, length=3).tolist() == [3.0, 10.0, -4.0]
    assert window_means(energy_wh, ends, length=3).tolist() == pytest.approx([1, 10 / 3, -4 / 3])


def test_stride_counts_from_the_first_full_window():
    assert window_ends(10, length=4, stride=3).tolist() == [3, 6, 9]
    assert window_ends(9, length=4, stride=3).tolist() == [3, 6]


@given(
    energy_wh=st.lists(st.floats(-50, 50), max_size=60),
    length=st.integers(1, 20),
    stride=st.integers(1, 7),
)
def test_labels_equal_direct_sums(energy_wh, length, stride):
    ends = window_ends(len(energy_wh), length=length, stride=stride)
    labels = window_sums(np.array(energy_wh), ends, length=length)
    direct = [sum(energy_wh[end - length + 1 : end + 1]) for end in ends]
    # A float64 cumulative sum of at most 60 values up to 50 rounds by far less than 1e-10.
    assert labels == pytest.approx(np.array(direct), abs=1e-10)


def test_labels_stay_exact_after_a_day_of_driving():
    # A float32 cumulative sum would be off by about 0.01 Wh here.
    energy_wh = np.full(86_400, 1.1)
    last = window_sums(energy_wh, np.array([86_399]), length=60)
    assert last == pytest.approx(66.0, abs=1e-8)
