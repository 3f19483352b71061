"""The benchmarks of large fleets measure what they say."""

from benchmarks.scale import Rounds, as_rows, bench_scale
from benchmarks.server import method_loads
from fedwatt.models import get_model


def test_ratios_are_to_the_smallest_fleet() -> None:
    rows = as_rows(
        [
            Rounds("fedavg", 1000, 3.0, 30.0, 1.0, 0.0, 9.0),
            Rounds("fedavg", 100, 2.0, 20.0, 1.0, 0.0, 1.0),
        ]
    )
    assert [row["time_ratio"] for row in rows] == [1.5, 1.0]
    assert [row["memory_ratio"] for row in rows] == [1.5, 1.0]


def test_each_fleet_is_measured_in_a_process_of_its_own() -> None:
    found = bench_scale((3, 6), ("fedavg",), participants=3, trips=3, steps=2, rounds=1)
    assert [one.vehicles for one in found] == [3, 6]
    assert all(one.seconds > 0 and one.rounds_mb > 0 for one in found)
    # Twice the vehicles, about twice the files.
    assert 1.2 < found[1].disk_mb / found[0].disk_mb < 3.5


def test_loads_are_the_bytes_of_the_messages() -> None:
    weights = get_model("mlp", window=60, features=8).layout.size
    loads = method_loads(("fedavg", "scaffold"))
    assert (loads["fedavg"].down_bytes, loads["fedavg"].up_bytes) == (4 * weights, 4 * weights)
    assert (loads["scaffold"].down_bytes, loads["scaffold"].up_bytes) == (8 * weights, 8 * weights)
    assert 0 < loads["fedavg"].server_s < 1
