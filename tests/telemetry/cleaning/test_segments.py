"""

Trips of a whole recording: cut at pauses and where the vehicle was parked.
"""

import numpy as np
import pytest

from fedwatt.telemetry.cleaning import Cleaning
from fedwatt.telemetry.cleaning.segments import (
    SAME_TIME,
    cut_at_gaps,
    in_order,
    split_at_pauses,
    without_copies,
)
from fedwatt.telemetry.trip import RawTrip


def test_rows_out_of_place_are_sorted(raw_trip):
    parts, account = in_order(raw_trip([0, 2, 1, 3], speed_mps=[0, 2, 1, 3]))
    assert parts[0].channels["speed_mps"].tolist() == [0, 1, 2, 3]
    assert account.count("repaired", "rows", "clock went backwards, sorted") == 1


def test_a_clock_set_back_starts_another_part(raw_trip):
    parts, account = in_order(raw_trip([0, 50, 100, 0, 50], speed_mps=[1, 2, 3, 4, 5]))
    assert [part.channels["speed_mps"].tolist() for part in parts] == [[1, 2, 3], [4, 5]]
    assert account.count("repaired", "trips") == 1


def test_of_rows_at_one_time_the_last_reading_wins(raw_trip):
    nan = np.nan
    trip = raw_trip([0, 1, 1, 1, 2], speed_mps=[0, 5, 6, nan, 7], ambient_c=[9, nan, nan, nan, 9])
    parts, account = in_order(trip)
    assert parts[0].time_s.tolist() == [0, 1, 2]
    assert parts[0].channels["speed_mps"].tolist() == [0, 6, 7]
    assert np.isnan(parts[0].channels["ambient_c"][1])
    assert account.count("dropped", "rows", SAME_TIME) == 2


def test_rows_of_one_time_that_complete_each_other_are_not_called_lost(raw_trip):
    nan = np.nan
    trip = raw_trip([0, 0, 1, 1], speed_mps=[5, nan, 6, nan], current_a=[nan, 1, nan, 2])
    parts, account = in_order(trip)
    assert parts[0].channels["current_a"].tolist() == [1, 2]
    assert account.count("dropped", "rows", "merged with the row of the same time") == 2


def test_rows_without_time_are_dropped(raw_trip):
    parts, account = in_order(raw_trip([0, np.nan, 2], speed_mps=[1, 2, 3]))
    assert parts[0].time_s.tolist() == [0, 2]
    assert account.count("dropped", "rows", "no time") == 1


def test_the_same_trip_in_two_files_is_used_once(raw_trip):
    trip = raw_trip([0, 1, 2, 0, 1], speed_mps=[1, 2, 3, 1, 2])
    remaining, account = without_copies(trip, np.array([4, 4, 4, 7, 7]))
    assert remaining.channels["speed_mps"].tolist() == [1, 2, 3]
    assert account.count("dropped", "rows", "trip also in another file") == 2


def test_a_trip_split_over_two_files_is_joined(raw_trip):
    trip = raw_trip([2, 3, 0, 1], speed_mps=[3, 4, 1, 2])
    remaining, account = without_copies(trip, np.array([1, 1, 2, 2]))
    assert remaining.channels["speed_mps"].tolist() == [1, 2, 3, 4]
    assert not account.entries


STRICT = Cleaning()
VED = Cleaning(maximum_standing_gap_s=31)


def test_a_trip_is_cut_where_nothing_was_recorded(raw_trip):
    trip = raw_trip([0, 10, 20.1, 21], speed_mps=[5, 5, 5, 5], power_w=[1, 1, 1, 1])
    parts, account = cut_at_gaps(trip, STRICT)
    assert [part.time_s.tolist() for part in parts] == [[0, 10], [20.1, 21]]
    assert account.reasons("repaired", "trips") == {"cut at a gap over 10 s": 1}


@pytest.mark.parametrize(("speed", "parts"), [([0, 0], 1), ([0, 3], 2), ([3, 0], 2)])
def test_a_standing_car_has_its_own_limit(raw_trip, speed, parts):
    trip = raw_trip([0, 30], speed_mps=speed, power_w=[1, 1])
    assert len(cut_at_gaps(trip, VED)[0]) == parts
    assert len(cut_at_gaps(trip, STRICT)[0]) == 2


def test_a_silent_pack_is_a_gap_although_rows_go_on(raw_trip):
    nan = np.nan
    voltage = [360, 360, nan, nan, 361, 362]
    trip = raw_trip([0, 4, 8, 12, 16, 20], speed_mps=[5] * 6, voltage_v=voltage, current_a=[1] * 6)
    parts, account = cut_at_gaps(trip, STRICT)
    assert [part.time_s.tolist() for part in parts] == [[0, 4], [16, 20]]
    assert account.reasons("dropped", "rows") == {"no voltage_v for over 10 s": 2}


def test_a_short_silence_is_bridged_by_the_value_held(raw_trip):
    nan = np.nan
    trip = raw_trip(
        [0, 4, 8, 12], speed_mps=[5] * 4, voltage_v=[360, nan, 350, 350], current_a=[1] * 4
    )
    (part,), account = cut_at_gaps(trip, STRICT)
    assert part.channels["voltage_v"].tolist() == [360, 360, 350, 350]
    assert not account.entries


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
    result, _ = split_at_pauses([recording(np.arange(20.0 + stand), speed)], pause_s=300)
    assert len(result) == trips


def test_without_a_date_trips_are_numbered() -> None:
    time_s = np.r_[np.arange(10.0), 400 + np.arange(10.0)]
    trips, _ = split_at_pauses([recording(time_s)], pause_s=300)
    assert [trip.name for trip in trips] == ["log-1", "log-2"]
