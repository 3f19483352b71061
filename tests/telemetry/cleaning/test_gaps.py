import numpy as np
import pytest

from fedwatt.telemetry.cleaning.cleaning import Cleaning
from fedwatt.telemetry.cleaning.gaps import cut_at_gaps

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
