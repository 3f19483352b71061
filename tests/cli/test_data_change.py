"""Fleets made from nothing, electrified, dealt anew and spoiled, as typed."""

from pathlib import Path

import numpy as np
import pytest

from fedwatt.fleet.store import fleet_source, read_fleet
from tests.telemetry.conftest import VED_HEADER, ved_rows


def test_other_kinds_of_vehicles(type_in, tmp_path: Path) -> None:
    status, printed = type_in(
        "data", "synth", "--kind", "bus", "--vehicles", "2", "--trips", "3", "--out", "buses"
    )
    assert status == 0, printed
    assert [vehicle.kind for vehicle in read_fleet(tmp_path / "buses")] == ["bus", "bus"]
    status, printed = type_in("data", "synth", "--kind", "boat", "--out", "boats")
    assert status == 2
    assert "boat" in printed
    assert not (tmp_path / "boats").exists()


def test_recorded_driving_is_electrified_and_marked(type_in, tmp_path: Path) -> None:
    rows = [row for trip in range(4) for row in ved_rows(trip=trip, day=trip + 0.5)]
    for row in rows:  # a petrol car: no pack signals, an engine
        row[15] = row[16] = row[17] = ""
        row[8] = "1500"
    week = tmp_path / "VED_171101_week.csv"
    week.write_text("\n".join([VED_HEADER, *(",".join(row) for row in rows)]) + "\n")
    status, printed = type_in(
        "data", "electrify", week.name, "--minimum-trips", "3", "--out", "electric"
    )
    assert status == 0, printed
    (vehicle,) = read_fleet(tmp_path / "electric")
    assert vehicle.labels == "simulated"
    for trip in vehicle.trips:  # 2 km at 36 km/h: between 80 and 400 Wh/km
        assert 160 < trip.channels["energy_wh"].sum() < 800
        assert trip.channels["speed_mps"].mean() == pytest.approx(10, rel=0.02)


def test_trips_are_dealt_anew(type_in, tmp_path: Path) -> None:
    type_in("data", "synth", "--vehicles", "4", "--trips", "8", "--out", "town")
    status, printed = type_in(
        *("data", "partition", "town", "--recipe", "dirichlet:100"),
        *("--clients", "3", "--out", "dealt"),
    )
    assert status == 0, printed
    dealt = list(read_fleet(tmp_path / "dealt"))
    assert [vehicle.name for vehicle in dealt] == ["client-001", "client-002", "client-003"]
    assert sum(len(vehicle.trips) for vehicle in dealt) == 4 * 8
    assert "dirichlet:100" in fleet_source(tmp_path / "dealt")


def test_some_vehicles_are_spoiled(type_in, tmp_path: Path) -> None:
    type_in("data", "synth", "--vehicles", "3", "--trips", "6", "--out", "town")
    status, printed = type_in(
        *("data", "spoil", "town", "--fault", "sensor bias", "--share", "1", "--size", "2"),
        *("--out", "spoiled"),
    )
    assert status == 0, printed
    for before, after in zip(
        read_fleet(tmp_path / "town"), read_fleet(tmp_path / "spoiled"), strict=True
    ):
        changed = [
            not np.array_equal(b.channels["speed_mps"], a.channels["speed_mps"])
            for b, a in zip(before.trips, after.trips, strict=True)
        ]
        assert 0 < sum(changed) < len(changed)  # training trips only
    status, printed = type_in("data", "spoil", "town", "--fault", "rust", "--out", "rusty")
    assert status == 2
    assert "label noise" in printed
