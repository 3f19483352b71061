"""Fleets made from nothing, electrified, dealt anew and corrupted, as typed."""

import re
from pathlib import Path

import numpy as np
import pytest

from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.store import fleet_source, read_fleet, write_fleet
from fedwatt.windows import DataSettings
from fedwatt.windows.client import split_of_trips
from tests.telemetry.conftest import VED_HEADER, ved_rows


def test_other_kinds_of_vehicles(type_in, tmp_path: Path) -> None:
    status, printed = type_in(
        "data", "generate", "--kind", "bus", "--vehicles", "2", "--trips", "3", "--out", "buses"
    )
    assert status == 0, printed
    assert [vehicle.kind for vehicle in read_fleet(tmp_path / "buses")] == ["bus", "bus"]
    status, printed = type_in("data", "generate", "--kind", "boat", "--out", "boats")
    assert status == 2
    assert "boat" in printed
    assert not (tmp_path / "boats").exists()


def test_a_fleet_may_be_made_in_the_folder_one_stands_in(type_in, tmp_path: Path) -> None:
    status, printed = type_in("data", "generate", "--vehicles", "1", "--trips", "3", "--out", ".")
    assert status == 0, printed
    assert Path.cwd().samefile(tmp_path)
    assert sorted(entry.name for entry in Path.cwd().iterdir()) == ["car-001", "fleet.json"]
    status, printed = type_in("data", "generate", "--vehicles", "1", "--trips", "3", "--out", ".")
    assert status == 2
    assert "not empty" in printed


def test_a_fleet_too_small_to_train_is_described(type_in, tmp_path: Path) -> None:
    seconds = {"long": 100, "just": 60, "short": 59}
    trips = (
        Trip(n, {c: np.ones(s) for c in ("speed_mps", "energy_wh")}) for n, s in seconds.items()
    )
    lonely = Vehicle("lonely", (Trip("one", {"energy_wh": np.ones(70), "speed_mps": np.ones(70)}),))
    write_fleet(tmp_path / "bare", [Vehicle("bare", tuple(trips)), lonely], "toys")
    status, printed = type_in("data", "describe", "bare")
    assert status == 0, printed
    assert "60 s windows" in printed
    # 100 s hold 41 windows, 60 s one, 59 s none; 70 s hold 11.
    assert re.search(r"bare simulated 3 .* 1000 42 ", printed)
    assert re.search(r"lonely simulated 1 .* 1000 11 Channels: speed_mps, energy_wh.$", printed)


def test_recorded_driving_is_electrified_and_marked(type_in, tmp_path: Path) -> None:
    rows = [row for trip in range(4) for row in ved_rows(trip=trip, day=trip + 0.5)]
    for row in rows:  # a petrol car: no pack signals, an engine
        row[15] = row[16] = row[17] = ""
        row[8] = "1500"
    week = tmp_path / "VED_171101_week.csv"
    week.write_text("\n".join([VED_HEADER, *(",".join(row) for row in rows)]) + "\n")
    status, printed = type_in(
        "data", "electrify", week.name, "--min-trips", "3", "--out", "electric"
    )
    assert status == 0, printed
    (vehicle,) = read_fleet(tmp_path / "electric")
    assert vehicle.labels == "simulated"
    for trip in vehicle.trips:  # 2 km at 36 km/h: between 80 and 400 Wh/km
        assert 160 < trip.channels["energy_wh"].sum() < 800
        assert trip.channels["speed_mps"].mean() == pytest.approx(10, rel=0.02)


def test_trips_are_dealt_anew(type_in, tmp_path: Path) -> None:
    type_in("data", "generate", "--vehicles", "4", "--trips", "8", "--out", "town")
    status, printed = type_in(
        *("data", "partition", "town", "--recipe", "dirichlet:100"),
        *("--clients", "3", "--out", "dealt"),
    )
    assert status == 0, printed
    dealt = list(read_fleet(tmp_path / "dealt"))
    assert [vehicle.name for vehicle in dealt] == ["client-001", "client-002", "client-003"]
    assert sum(len(vehicle.trips) for vehicle in dealt) == 4 * 8
    assert "dirichlet:100" in fleet_source(tmp_path / "dealt")


def test_some_vehicles_are_corrupted(type_in, tmp_path: Path) -> None:
    type_in("data", "generate", "--vehicles", "3", "--trips", "6", "--out", "town")
    status, printed = type_in(
        *("data", "corrupt", "town", "--share", "1", "--noise", "2"),
        *("--out", "corrupted"),
    )
    assert status == 0, printed
    for before, after in zip(
        read_fleet(tmp_path / "town"), read_fleet(tmp_path / "corrupted"), strict=True
    ):
        changed = [
            not np.array_equal(b.channels["energy_wh"], a.channels["energy_wh"])
            for b, a in zip(before.trips, after.trips, strict=True)
        ]
        assert 0 < sum(changed) < len(changed)  # training trips only
    status, printed = type_in(
        *("data", "corrupt", "town", "--share", "1"),
        *("--split-seed", "5", "--window", "30", "--out", "other"),
    )
    assert status == 0, printed
    settings = DataSettings(split_seed=5, window=30)
    for before, after in zip(
        read_fleet(tmp_path / "town"), read_fleet(tmp_path / "other"), strict=True
    ):
        split_of = split_of_trips(before, settings)
        for b, a in zip(before.trips, after.trips, strict=True):
            same = np.array_equal(b.channels["energy_wh"], a.channels["energy_wh"])
            assert same != (split_of[b.name] == "train")
    status, printed = type_in("data", "corrupt", "town", "--noise", "-1", "--out", "other2")
    assert status == 2
    assert "The noise must be a positive number" in printed
