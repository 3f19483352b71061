"""Trips of a whole recording: cut at pauses and where the vehicle was parked."""

import numpy as np
import pytest

from fedwatt.telemetry.cleaning.pauses import split_at_pauses
from fedwatt.telemetry.trip import RawTrip

DATED = 1_710_000_000.0  # 9 March 2024, 16:00 UTC


def recording(time_s: np.ndarray, speed: float | np.ndarray = 10.0) -> RawTrip:
    return RawTrip("log", time_s, {"speed_mps": np.broadcast_to(speed, time_s.shape).astype(float)})


def test_a_pause_ends_a_trip_and_its_beginning_names_it() -> None:
    time_s = DATED + np.r_[np.arange(100.0), 400 + np.arange(50.0)]
    trips, account = split_at_pauses([recording(time_s)], pause_s=300)
    assert [(trip.name, trip.rows) for trip in trips] == [
        ("2024-03-09T16-00-00", 100),
        ("2024-03-09T16-06-40", 50),
    ]
    assert account.entries == {}


def test_rows_in_any_order_give_the_same_trips() -> None:
    time_s = DATED + np.r_[np.arange(100.0), 400 + np.arange(50.0)]
    shuffled = np.random.default_rng(0).permutation(time_s)
    trips, account = split_at_pauses([recording(shuffled)], pause_s=300)
    assert [trip.rows for trip in trips] == [100, 50]
    assert list(account.reasons("repaired", "rows")) == ["not in order of time, sorted"]


def test_a_parked_vehicle_ends_a_trip_and_its_rows_are_counted() -> None:
    # Ten rows of driving, a stand of 400 s with a row every second, ten rows of driving.
    speed = np.r_[np.full(10, 5.0), np.zeros(401), np.full(10, 5.0)]
    trips, account = split_at_pauses([recording(np.arange(421.0), speed)], pause_s=300)
    assert [trip.rows for trip in trips] == [11, 11]
    assert account.reasons("dropped", "rows") == {"parked: standing for over 5 min": 399}


@pytest.mark.parametrize(("stand", "trips"), [(250, 1), (310, 2)])
def test_a_red_light_does_not(stand: int, trips: int) -> None:
    speed = np.r_[np.full(10, 5.0), np.zeros(stand), np.full(10, 5.0)]
    found, _ = split_at_pauses([recording(np.arange(20.0 + stand), speed)], pause_s=300)
    assert len(found) == trips


def test_without_a_date_trips_are_numbered() -> None:
    time_s = np.r_[np.arange(10.0), 400 + np.arange(10.0)]
    trips, _ = split_at_pauses([recording(time_s)], pause_s=300)
    assert [trip.name for trip in trips] == ["log-1", "log-2"]
