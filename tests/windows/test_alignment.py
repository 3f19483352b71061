"""A vehicle's time offset: found where it was put, and none where there is none."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.store import load_fleet, write_fleet
from fedwatt.windows import DataSettings, build_client, build_fleet
from fedwatt.windows.client import prepared, split_of_trips
from fedwatt.windows.time_offset import aligned, delayed, delayed_by, vehicle_lag_s


def driven(lag_s: float, trips: int = 6) -> Vehicle:
    """Trips whose power follows motion after `lag_s`."""
    draw = np.random.default_rng(3)
    made = []
    for number in range(trips):
        steps = draw.normal(0, 1.2, 60)
        knots = np.maximum(np.cumsum(steps) - np.minimum.accumulate(np.cumsum(steps)), 0.0)
        speed = np.interp(np.arange(600), np.arange(60) * 10.0, 2 * knots)
        true = delayed_by(speed, lag_s)
        padded = np.pad(true, 2, mode="edge")
        change = (padded[4:] + padded[3:-1] - padded[1:-3] - padded[:-4]) / 6
        energy_wh = 0.1 + 0.05 * true + 0.4 * true * change + draw.normal(0, 0.05, 600)
        channels = {"speed_mps": speed, "energy_wh": energy_wh, "ambient_c": np.full(600, 20.0)}
        made.append(Trip(str(number), channels))
    return Vehicle("car", tuple(made), labels="measured")


def found_lag_s(vehicle: Vehicle) -> float:
    return vehicle_lag_s(vehicle, split_of_trips(vehicle, DataSettings()))


@pytest.mark.parametrize("lag_s", [0.0, 0.75, 1.0, 2.5])
def test_the_lag_is_found_again(lag_s):
    assert found_lag_s(driven(lag_s)) == pytest.approx(lag_s, abs=0.25)


def test_a_vehicle_is_aligned_where_the_settings_ask_for_it():
    vehicle = driven(1.0)
    assert prepared(vehicle, DataSettings()) is vehicle
    result = prepared(vehicle, DataSettings(align=True))
    assert result.facts["lag_s"] == 1.0
    speed = vehicle.trips[0].channels["speed_mps"]
    assert result.trips[0].channels["speed_mps"] == pytest.approx(np.append(speed[0], speed[:-1]))
    assert prepared(result, DataSettings(align=True)) is result  # not delayed twice


def test_windows_are_aligned_wherever_vehicles_come_from(tmp_path):
    vehicle = driven(1.0)
    settings = DataSettings(features="speed", align=True)
    expected = build_client(aligned(vehicle, 1.0), replace(settings, align=False))
    write_fleet(tmp_path / "fleet", [vehicle], "one")
    for fleet in (
        build_fleet([vehicle], settings, "one"),
        load_fleet(tmp_path / "fleet", settings),
    ):
        (client,) = fleet.clients
        assert client.lag_s == 1.0
        np.testing.assert_array_equal(client.series, expected.series)
    assert build_client(vehicle, replace(settings, align=False)).lag_s == 0.0


def test_only_motion_is_delayed():
    channels = {
        name: np.array([1.0, 2.0, 4.0]) for name in ("speed_mps", "elevation_m", "heater_w")
    }
    result = delayed(Trip("1", channels | {"energy_wh": np.ones(3)}), 0.5).channels
    assert result["speed_mps"].tolist() == result["elevation_m"].tolist() == [1.0, 1.5, 3.0]
    assert result["heater_w"].tolist() == [1.0, 2.0, 4.0]
    # A position that is not known spoils only the seconds that it is part of.
    lost = delayed_by(np.array([1.0, np.nan, 3.0, 4.0]), 1.0)
    assert np.isnan(lost).tolist() == [False, False, True, False]


def test_trips_without_measured_energy_have_no_lag():
    vehicle = driven(1.0)
    charge = {"speed_mps": np.ones(600), "ambient_c": np.ones(600), "soc": np.full(600, 0.5)}
    trips = tuple(replace(trip, channels=charge) for trip in vehicle.trips)
    assert found_lag_s(replace(vehicle, trips=trips)) == 0.0
    assert aligned(vehicle, 0.0).trips[0] is vehicle.trips[0]
