"""A vehicle refuses telemetry that does not fit together, and says where."""

import numpy as np
import pytest

from fedwatt.errors import DataError
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.store import write_vehicle
from fedwatt.windows import DataSettings, build_client
from tests.windows.toys import make_trip


def test_channels_become_float64():
    trip = Trip("1", {"speed_mps": np.arange(3), "energy_wh": np.ones(3, np.float32)})
    assert trip.seconds == 3
    assert {values.dtype for values in trip.channels.values()} == {np.dtype(np.float64)}


def test_an_empty_trip_has_no_seconds():
    assert Trip("1", {}).seconds == 0


@pytest.mark.parametrize(
    ("trip", "message"),
    [
        (make_trip("7", 5, energy_wh=None, soc=None), "trip '7' has neither 'energy_wh'"),
        (make_trip("7", 5, speed_mps=None), "trip '7' has no channel 'speed_mps'"),
        (make_trip("7", 5, ac_w=np.zeros(4)), "channel 'ac_w' has 4 samples but 'speed_mps' has 5"),
        (make_trip("7", 5, ac_w=np.zeros((5, 2))), r"channel 'ac_w' has shape \(5, 2\)"),
        (make_trip("7", 5, sped_mps=np.zeros(5)), "Did you mean 'speed_mps'"),
    ],
)
def test_misshapen_trips_name_vehicle_trip_and_channel(trip, message):
    with pytest.raises(DataError, match=message) as refusal:
        Vehicle("car-1", (trip,))
    assert "Vehicle 'car-1', trip '7'" in str(refusal.value)


def test_raw_channels_are_not_those_of_a_trip():
    with pytest.raises(DataError, match="Unknown channel 'engine_rpm'"):
        Vehicle("car-1", (make_trip("7", 5, engine_rpm=np.zeros(5)),))


def test_only_an_unlabelled_vehicle_may_lack_energy():
    silent = make_trip("7", 90, energy_wh=None, soc=None)
    assert Vehicle("car-1", (silent,), labels="none").trips[0].seconds == 90
    with pytest.raises(DataError, match=r"trip '7' has neither 'energy_wh' .* nor 'soc'"):
        Vehicle("car-1", (silent,), labels="measured")


def test_a_state_of_charge_alone_is_a_label():
    charged = make_trip("7", 90, energy_wh=None)
    assert Vehicle("car-1", (charged,), labels="measured").trips[0].seconds == 90


def test_trips_without_energy_are_neither_windowed_nor_stored(tmp_path):
    vehicle = Vehicle("car-1", (make_trip("7", 90, energy_wh=None),), labels="none")
    with pytest.raises(DataError, match="no energy to learn"):
        build_client(vehicle, DataSettings())
    with pytest.raises(DataError, match="no energy to learn"):
        write_vehicle(tmp_path / "car-1", vehicle)


def test_distance_is_the_sum_of_speeds():
    assert Trip("1", {"speed_mps": np.full(5, 3.0)}).metres == 15.0


def test_duplicate_trip_names_are_refused():
    with pytest.raises(DataError, match="'car-1' has 2 trips named '7'"):
        Vehicle("car-1", (make_trip("7", 5), make_trip("8", 5), make_trip("7", 6)))


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"kind": "lorry"}, {"labels": "guessed"}], ids=lambda d: next(iter(d))
)
def test_unknown_kinds_are_refused(wrong):
    with pytest.raises(DataError):
        Vehicle(**{"name": "car-1", "trips": ()} | wrong)
