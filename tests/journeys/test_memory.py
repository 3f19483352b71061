"""Memory of earlier trips: by hand for one trip, order, age, bounds, and unknown times."""

import math

import numpy as np
import pytest

from fedwatt.journeys.memory import (
    LIMIT,
    MOST_TRIPS,
    OLDEST,
    TIME_CONSTANT_S,
    PastTrip,
    TripMemory,
    earlier_trips,
    past_trip,
    remembered_offset,
)
from fedwatt.telemetry import Trip

HOUR = 3600.0


def past(begin_s: float = 0.0, residual: float = 0.2, cold: float = 1.0) -> PastTrip:
    """Return a trip of half an hour."""
    return PastTrip(begin_s, begin_s + HOUR / 2, cold, residual, 30.0)


def test_one_trip_by_hand():
    # Amplitude 0.15 · 1.3 = 0.195, squared 0.038025; noise 0.05² + 0.09 / 30 = 0.0055.
    decay = math.exp(-2 * HOUR / TIME_CONSTANT_S)
    expected = 0.2 * decay * 0.038025 / (0.038025 + 0.0055)
    assert remembered_offset([past()], 2 * HOUR, 1.0) == pytest.approx(expected)


def test_warm_trips_carry_less_than_cold_ones():
    cold = remembered_offset([past()], HOUR, 1.0)
    warm = remembered_offset([past(cold=0.0)], HOUR, 0.0)
    assert 0 < warm < 0.4 * cold


def test_only_trips_that_ended_before_count():
    assert remembered_offset([past(begin_s=0.0)], HOUR / 4, 1.0) == 0.0
    assert remembered_offset([past(begin_s=5 * HOUR)], HOUR, 1.0) == 0.0


def test_old_trips_are_forgotten():
    day = TIME_CONSTANT_S
    assert remembered_offset([past()], HOUR, 1.0) > 2 * remembered_offset([past()], day, 1.0)
    assert remembered_offset([past()], (OLDEST + 1) * day, 1.0) == 0.0


def test_no_trip_however_absurd_moves_a_window_beyond_the_limit():
    trips = [past(begin_s=HOUR * number, residual=1e6, cold=2.0) for number in range(30)]
    assert abs(remembered_offset(trips, 40 * HOUR, 2.0)) <= LIMIT


def test_at_most_the_latest_trips_count():
    trips = [past(begin_s=HOUR * number) for number in range(3 * MOST_TRIPS + 5)]
    now = (3 * MOST_TRIPS + 6) * HOUR
    assert remembered_offset(trips, now, 1.0) == remembered_offset(trips[5:], now, 1.0)


def test_a_vehicle_whose_trips_do_not_resemble_each_other_has_no_memory():
    alike = [past(begin_s=HOUR * number) for number in range(12)]
    now = 13 * HOUR
    assert remembered_offset(alike, now, 1.0) > 0.15
    turns = [past(begin_s=HOUR * number, residual=(-1) ** number * 0.2) for number in range(12)]
    turns.append(past(begin_s=12 * HOUR))
    alone = remembered_offset(turns[-1:], now, 1.0)
    assert alone > 0.1
    # Each trip is the opposite of what the one before let expect.
    assert abs(remembered_offset(turns, now, 1.0)) < 0.1 * alone


@pytest.mark.parametrize("unknown", [past(begin_s=math.nan), past(residual=math.nan)])
def test_unknown_times_and_residuals_teach_nothing(unknown):
    assert remembered_offset([unknown], HOUR, 1.0) == 0.0
    assert remembered_offset([past()], math.nan, 1.0) == 0.0


def recorded(begin_s: float, ambient_c: float = 0.0) -> Trip:
    """Return half an hour of driving."""
    channels = {"ambient_c": np.full(1800, ambient_c)}
    return Trip(f"at {begin_s:g}", channels, start_time_s=begin_s)


def test_a_recorded_trip_is_remembered_in_units_of_the_vehicle():
    morning = past_trip(recorded(0.0), np.array([5.0, 15.0]), window=60, scale_wh=50.0)
    assert morning == past(residual=0.2)


def test_the_memory_of_a_stream_by_hand():
    memory = TripMemory(scale_wh=50.0, past=[past()])
    expected_wh = 50.0 * remembered_offset([past()], HOUR, 1.0)
    assert memory.offset(HOUR, 1.0) == pytest.approx(expected_wh)
    assert memory.offset(HOUR, 0.0) == memory.offset_wh  # the same all trip long
    # Windows took 10 and 20 Wh beyond predictions that had the offset in them.
    for residual_wh in (10.0, 20.0, math.nan):
        memory.observe(residual_wh)
    memory.end_trip(HOUR, 2 * HOUR, 1.0, 60.0)
    assert memory.past[-1].residual == pytest.approx((15.0 + expected_wh) / 50.0)
    assert (memory.offset_wh, memory.residuals) == (None, 0)
    memory.end_trip(3 * HOUR, 4 * HOUR, 1.0, 60.0)  # without energy it teaches nothing
    assert len(memory.past) == 2


def test_trips_that_are_over_are_picked_in_order():
    begin = 10 * 24 * HOUR
    trips = [recorded(begin - hours * HOUR) for hours in (2, 0.25, 30, -1)]
    trips.append(Trip("no time", {"ambient_c": np.zeros(1800)}))
    starts = [trip.start_time_s for trip in earlier_trips(trips, begin)]
    assert starts == [begin - 30 * HOUR, begin - 2 * HOUR]
    assert earlier_trips(trips, begin + 7 * 24 * HOUR) == []
    assert earlier_trips(trips, math.nan) == []
    many = [recorded(begin - HOUR * (number + 1)) for number in range(2 * MOST_TRIPS + 3)]
    assert len(earlier_trips(many, begin)) == 2 * MOST_TRIPS
