"""fedwatt beside what practitioners use: links, differences and tables by hand."""

import numpy as np
import pytest

pytest.importorskip("pandas")

from benchmarks.practitioner_links import link_numbers, linked
from benchmarks.practitioner_tables import (
    Comparison,
    median_error,
    on_same,
    paired_difference,
    peer_cells,
    readme_table,
    rmse,
)
from fedwatt.errors import DataError

CELLS = [(str(split), name) for split in (1, 2) for name in ("a", "b")]


def test_the_rest_of_a_way_joins_its_last_link():
    # 1,000 m in pieces of 100 m: three links of 300 m, of which the last has 400 m.
    assert np.bincount(link_numbers(np.full(10, 100.0), 300.0)).tolist() == [3, 3, 4]
    assert link_numbers(np.full(2, 50.0), 300.0).tolist() == [0, 0]


def test_a_link_has_speed_grade_and_time_since_the_start():
    pieces = {
        "metres": np.array([300.0, 300.0]),
        "seconds": np.array([30.0, 60.0]),
        "rise": np.array([3.0, -6.0]),
        "standing": np.array([0.0, 15.0]),
        "drive": np.array([30.0, 0.0]),
        "climate": np.array([60_000.0, 0.0]),
    }
    links = linked(np.array([0, 1]), pieces, np.array([50.0, 20.0]), 5.0)
    assert links["speed_mph"].tolist() == pytest.approx([22.369, 11.185], abs=1e-3)
    assert links["grade_percent"].tolist() == [1.0, -2.0]
    assert links["minutes"].tolist() == [0.0, 0.5]
    assert links["standing_share"].tolist() == [0.0, 0.25]
    assert links["climate_kw"].tolist() == [2.0, 0.0]
    assert links["kwh"].tolist() == [0.05, 0.02]


def test_a_constant_gap_has_an_interval_of_no_width():
    peer = {cell: {"x": 5.0, "y": 9.0} for cell in CELLS}
    ours = {cell: {"y": 8.0, "x": 4.0} for cell in CELLS}
    paired = paired_difference(ours, peer, median_error)
    assert (paired.value, paired.low, paired.high) == pytest.approx((-1.0, -1.0, -1.0))


def test_one_vehicle_s_gain_is_not_sure():
    # Only vehicle a gains: draws without it gain nothing.
    peer = {cell: {"": 5.0} for cell in CELLS}
    ours = {cell: {"": 1.0 if cell[1] == "a" else 5.0} for cell in CELLS}
    paired = paired_difference(ours, peer, rmse)
    assert paired.low < paired.value < paired.high == pytest.approx(0.0)


def test_only_trips_that_both_sides_predict_count():
    ours = {("1", "a"): {"x": 1.0, "y": 2.0, "z": 3.0}}
    theirs = {("1", "a"): {"y": 5.0, "z": float("nan")}, ("2", "a"): {"x": 9.0}}
    assert on_same(ours, theirs) == ({("1", "a"): [2.0]}, {("1", "a"): [5.0]})


def test_records_of_other_trips_are_refused():
    with pytest.raises(DataError, match="no trip that both sides predict"):
        paired_difference({("1", "a"): {"x": 1.0}}, {("1", "a"): {"y": 1.0}}, median_error)


def test_the_table_names_inputs_and_baseline():
    part = {"1": {"errors_percent": {"mean": {"a": {"x": 10.0, "y": 20.0}}}}}
    peers = {"mean": peer_cells(part, "errors_percent", "mean")}
    row = readme_table(
        [Comparison("trip", "route", "%", {("1", "a"): {"x": 5.0, "y": 9.0}}, peers, "speed")]
    )
    last = "| trip: speed | mean: 15.0 % | 7.0 % | −8.0 [−8.0, −8.0] |"
    assert row.splitlines()[-1] == last
