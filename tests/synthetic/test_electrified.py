"""Electrified recordings as vehicles of a fleet."""

import numpy as np
import pytest

from fedwatt.errors import DataError, SettingError
from fedwatt.synthetic.electrify import electrified_vehicle
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows import DataSettings, build_client
from tests.windows.toys import same_trips


def recording(trips: int = 6, seconds: int = 300, **extra: np.ndarray) -> Vehicle:
    clock = np.arange(seconds)
    return Vehicle(
        "ved-7",
        tuple(
            Trip(
                str(number),
                {
                    "speed_mps": 8 + 7 * np.sin(clock / (11 + number)),
                    "ambient_c": np.full(seconds, 3.0 * number),
                    "heater_w": np.zeros(seconds),
                    **extra,
                },
            )
            for number in range(trips)
        ),
        labels="none",
        facts={"source": "VED", "powertrain": "ice"},
    )


def test_labels_are_marked_simulated_and_the_speed_is_real():
    made = electrified_vehicle(recording())
    assert (made.name, made.kind, made.labels) == ("ved-7", "passenger", "simulated")
    assert made.facts["recorded_powertrain"] == "ice"
    assert "electrified" in made.facts["source"]
    for trip, real in zip(made.trips, recording().trips, strict=True):
        assert trip.name == real.name
        assert np.array_equal(trip.channels["speed_mps"], real.channels["speed_mps"])
        assert np.isfinite(trip.channels["energy_wh"]).all()
    # Heating is the electric vehicle's own: on at 0 °C although the recording had none.
    assert (made.trips[0].channels["heater_w"] > 0).all()


def test_measured_labels_are_never_passed_on():
    measured = recording(energy_wh=np.full(300, 99.0), voltage_v=np.full(300, 1.0))
    assert same_trips(electrified_vehicle(measured), electrified_vehicle(recording()))


def test_truck_and_bus_have_the_same_trips_and_the_same_split():
    settings = DataSettings(window=60, features="base")
    clients = [
        build_client(electrified_vehicle(recording(), kind=kind), settings)
        for kind in ("passenger", "truck", "bus")
    ]
    car, truck, bus = clients
    assert car.trips == truck.trips == bus.trips
    assert [c.kind for c in clients] == ["passenger", "truck", "bus"]
    assert car.label_center_wh < truck.label_center_wh < bus.label_center_wh


def test_a_vehicle_depends_on_its_name_and_the_seed_alone():
    alone = electrified_vehicle(recording())
    assert same_trips(alone, electrified_vehicle(recording()))
    assert not same_trips(alone, electrified_vehicle(recording(), seed=1))


def test_a_vehicle_of_a_fleet_can_be_electrified_again():
    car = electrified_vehicle(recording())
    assert electrified_vehicle(car, kind="bus").kind == "bus"


def test_unknown_kinds_and_missing_temperature_are_refused():
    with pytest.raises(SettingError, match="kind of vehicle"):
        electrified_vehicle(recording(), kind="tram")
    bare = Vehicle("x", (Trip("1", {"speed_mps": np.ones(90)}),), labels="none")
    with pytest.raises(DataError, match="trip '1' has no channel 'ambient_c'"):
        electrified_vehicle(bare)


def motorway(seconds: int) -> Trip:
    channels = {"speed_mps": 35.0, "ambient_c": -10.0, "energy_wh": 0.0}
    return Trip(f"{seconds} s", {name: np.full(seconds, v) for name, v in channels.items()})


def test_who_drives_far_has_a_larger_pack():
    near = electrified_vehicle(Vehicle("car", (motorway(200),)))
    far = electrified_vehicle(Vehicle("car", (motorway(200), motorway(14_400))))
    assert far.facts["pack_capacity_wh"] > 1.2 * near.facts["pack_capacity_wh"]
    assert [trip.name for trip in far.trips] == ["200 s", "14400 s"]
    # At 35 m/s power is far above idling in every second: the pack never ran dry.
    assert far.trips[1].channels["energy_wh"].min() * 3600 > 15_000
    assert far.trips[1].channels["soc"].min() > 0


def test_a_trip_no_pack_could_drive_is_refused():
    # From 0 to 69 m/s and back, second by second: megawatts.
    absurd = {**motorway(200).channels, "speed_mps": np.tile([0.0, 69.0], 100)}
    with pytest.raises(DataError, match=r"trip 'absurd': even a pack of \d+ Wh"):
        electrified_vehicle(Vehicle("car", (Trip("absurd", absurd),)))
