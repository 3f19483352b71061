"""A vehicle refuses telemetry that does not fit together, and says where."""

import numpy as np
import pytest

from fedwatt.data import Trip, Vehicle
from fedwatt.errors import DataError

from .toys import make_trip


def test_channels_become_float64():
    trip = Trip("1", {"speed_mps": np.arange(3), "energy_wh": np.ones(3, np.float32)})
    assert trip.seconds == 3
    assert {values.dtype for values in trip.channels.values()} == {np.dtype(np.float64)}


def test_an_empty_trip_has_no_seconds():
    assert Trip("1", {}).seconds == 0


@pytest.mark.parametrize(
    ("trip", "message"),
    [
        (make_trip("7", 5, energy_wh=None), "trip '7' has no channel 'energy_wh'"),
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


def test_duplicate_trip_names_are_refused():
    with pytest.raises(DataError, match="'car-1' has 2 trips named '7'"):
        Vehicle("car-1", (make_trip("7", 5), make_trip("8", 5), make_trip("7", 6)))


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"kind": "lorry"}, {"labels": "guessed"}], ids=lambda d: next(iter(d))
)
def test_unknown_kinds_are_refused(wrong):
    with pytest.raises(DataError):
        Vehicle(**{"name": "car-1", "trips": ()} | wrong)
