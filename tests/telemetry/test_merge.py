from dataclasses import replace

import numpy as np
import pytest

from fedwatt.errors import DataError
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.merge import merge_fleets
from fedwatt.telemetry.store import fleet_source, read_fleet, write_fleet


def car(name: str, **channels: float) -> Vehicle:
    seconds = {"speed_mps": 10.0, "energy_wh": 2.0, **channels}
    trip = Trip("1", {channel: np.full(70, value) for channel, value in seconds.items()})
    return Vehicle(name, (trip,), labels="measured", facts={"mass_kg": 1500})


def test_names_stay_unless_they_clash(tmp_path):
    one, other, out = (tmp_path / name for name in ("north", "south", "both"))
    place = {"latitude_deg": 1.0, "longitude_deg": 2.0}
    write_fleet(one, [car("car-1"), car("car-2")], "a")
    write_fleet(other, [car("Car-2", **place), car("bus 3", elevation_m=7.0)], "b")
    parts = merge_fleets([one, other], out)
    merged = {vehicle.name: vehicle for vehicle in read_fleet(out)}
    assert sorted(merged) == ["bus 3", "car-1", "north-car-2", "south-Car-2"]
    assert merged["south-Car-2"].trips[0].channels["latitude_deg"].tolist() == [1.0] * 70
    assert merged["car-1"].facts == {"mass_kg": 1500, "merged_from": "a"}
    assert fleet_source(out) == "merged: a; b"
    assert [(p.vehicles, p.with_positions, p.with_elevation, p.renamed) for p in parts] == [
        (2, 0, 0, 1),
        (2, 1, 1, 1),
    ]
    assert "1 vehicle got 'south-' before the name" in parts[1].sentence()


def test_vehicles_without_energy_are_told(tmp_path):
    charge = car("car-2", soc=0.5)
    without = {n: v for n, v in charge.trips[0].channels.items() if n != "energy_wh"}
    # One trip without energy is enough for a run to leave a vehicle out.
    mixed = replace(charge, trips=(*charge.trips, Trip("2", without)))
    write_fleet(tmp_path / "north", [car("car-1"), mixed], "a")
    write_fleet(tmp_path / "south", [car("car-3")], "b")
    one, other = merge_fleets([tmp_path / "north", tmp_path / "south"], tmp_path / "out")
    assert (
        "energy: 1 measured, 1 none. Left out of a run that predicts energy, but not by "
        "data.target = soc: 1 vehicle with trips without energy." in one.sentence()
    )
    assert other.sentence().endswith("energy: 1 measured.")


def test_one_fleet_is_nothing_to_merge(tmp_path):
    write_fleet(tmp_path / "a", [car("car-1")], "a")
    with pytest.raises(DataError, match="two or more different fleets"):
        merge_fleets([tmp_path / "a", tmp_path / "." / "a"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
