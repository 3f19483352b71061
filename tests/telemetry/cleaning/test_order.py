import numpy as np

from fedwatt.telemetry.cleaning.order import in_order, without_copies


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
    assert account.count("dropped", "rows") == 2


def test_rows_without_time_are_dropped(raw_trip):
    parts, account = in_order(raw_trip([0, np.nan, 2], speed_mps=[1, 2, 3]))
    assert parts[0].time_s.tolist() == [0, 2]
    assert account.count("dropped", "rows", "no time") == 1


def test_the_same_trip_in_two_files_is_used_once(raw_trip):
    trip = raw_trip([0, 1, 2, 0, 1], speed_mps=[1, 2, 3, 1, 2])
    kept, account = without_copies(trip, np.array([4, 4, 4, 7, 7]))
    assert kept.channels["speed_mps"].tolist() == [1, 2, 3]
    assert account.count("dropped", "rows", "trip also in another file") == 2


def test_a_trip_split_over_two_files_is_joined(raw_trip):
    trip = raw_trip([2, 3, 0, 1], speed_mps=[3, 4, 1, 2])
    kept, account = without_copies(trip, np.array([1, 1, 2, 2]))
    assert kept.channels["speed_mps"].tolist() == [1, 2, 3, 4]
    assert not account.entries
