"""The load generator without its processes: what it asks for and how it counts."""

import json
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from benchmarks.light_vehicles import ERRORS, FAULTS, fault_of, vehicles
from benchmarks.many_vehicles import (
    Cost,
    Load,
    Watched,
    configuration,
    make_store,
    noticed_p95,
    refuse_few_files,
)
from benchmarks.many_vehicles import table as shown
from fedwatt.errors import RunError
from fedwatt.metrics import ErrorSums
from fedwatt.runs.config import from_toml


def test_the_run_asks_as_many_as_it_should() -> None:
    config = from_toml(configuration(Load(1000, 100, rounds=3)))
    assert (config.deploy.vehicles, config.training.rounds) == (1000, 3)
    assert config.training.participation * config.deploy.vehicles == 100
    assert config.training.evaluate_vehicles == 100


def test_a_fifth_misbehave_in_all_ways() -> None:
    faults = Counter(fault_of(number, 20) for number in range(300))
    assert faults == {"": 240, **dict.fromkeys(FAULTS, 12)}
    assert Load(300, 100, faulty=20).connected == 288  # all but those whose clocks are wrong
    assert not any(fault_of(number, 0) for number in range(300))
    assert all(fault_of(number, 100) for number in range(300))


def test_more_vehicles_than_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda kind: (1000, 4096))
    refuse_few_files(3000)
    with pytest.raises(RunError, match=r"4,096 files here, and .* each of the 4,000 vehicles"):
        refuse_few_files(4000)


def test_vehicles_have_the_keys_that_the_store_accepts(tmp_path: Path) -> None:
    store = make_store(tmp_path / "server", 3, configuration(Load(3, 3)))
    fleet = list(vehicles(store.folder, "127.0.0.1:9", range(3), 1.0, 0))
    assert [vehicle.name for vehicle in fleet] == sorted(
        name for name, _ in store.accepted().values()
    )
    assert len({vehicle.link.public for vehicle in fleet}) == 3
    assert ErrorSums.from_array(ERRORS).rmse == pytest.approx(31.6, abs=0.03)


def test_rounds_and_waits_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "progress.jsonl"
    watched = Watched(log)
    assert watched.rounds() == 0 and not watched.began
    events = [{"event": "start"}, {"event": "round", "rows": [{"replies": 7}]}]
    log.write_text("".join(json.dumps(event) + "\n" for event in events) + '{"event": "ro')
    assert watched.rounds() == 1 and watched.began and watched.replies == [7]
    lines = [["car", "train", number / 100] for number in range(101)] + [["car", "enrol", 99.0]]
    (tmp_path / "noticed-0.txt").write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert noticed_p95(tmp_path) == pytest.approx(0.95)


def test_a_row_says_what_was_switched_off() -> None:
    cost = Cost(1.0, 0.05, 30.0, 2.5, 0.5, 0.25, 1.25, 120.0, 150.0, [10])
    load = vars(Load(20, 10, faulty=20, fast_path=False))
    row = shown([{"load": load, "cost": vars(cost)}]).splitlines()[-1]
    server = "public interface, 20 % at fault"
    assert row == f"| 20 | 10 | {server} | 2.5 s | 0.50, 0.25 s | 75.0 ms | 150 MB |"
