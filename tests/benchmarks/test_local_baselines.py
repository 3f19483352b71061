"""Gains of federating from records made by hand."""

import pytest

from benchmarks.local_baselines import gain

RECORDS = [
    {"f": {"a": 1.0, "b": 2.0, "c": 3.0}, "l": {"a": 2.0, "b": 5.0, "c": 2.0}},
    {"f": {"a": 1.0, "b": 2.0, "c": 3.0}, "l": {"a": 4.0, "b": 5.0, "c": 2.0}},
]


def test_a_gain_is_local_minus_federated_over_vehicles_and_over_splits():
    gains = gain(RECORDS, "f", "l")
    # By vehicle 2, 3 and -1; by split 1 and 5/3.
    assert gains["over vehicles"]["mean"] == pytest.approx(4 / 3)
    assert gains["over vehicles"]["seeds"] == 3
    assert gains["over splits"]["mean"] == pytest.approx(4 / 3)
    # Two splits 2/3 apart: half width 12.706 · (2/3 / √2) / √2.
    half = 12.7062 / 3
    assert gains["over splits"]["low"] == pytest.approx(4 / 3 - half, abs=1e-3)
    assert gains["median"] == 2.0
    assert (gains["better"], gains["vehicles"], gains["splits"]) == (2, 3, 2)
    assert gains["federated"] == 2.0


def test_vehicles_can_be_left_out():
    gains = gain(RECORDS, "f", "l", without=("c",))
    assert gains["over vehicles"]["mean"] == 2.5 and gains["vehicles"] == 2
