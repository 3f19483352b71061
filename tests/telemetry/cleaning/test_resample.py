import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwatt.telemetry.cleaning.resample import between_updates, centred_mean, resample
from fedwatt.telemetry.trip import RawTrip


def test_energy_of_held_power_is_split_exactly_at_the_seconds(raw_trip):
    # 360 W from 0 to 1.5 s, then -720 W (regeneration) to 2.5 s: 360 J, 180-360 J, -360 J, and the
    # third interval is only observed up to 2.5 s.
    trip = raw_trip(
        [0.0, 1.5, 2.5],
        speed_mps=[0, 0, 0],
        voltage_v=[360, 360, 360],
        current_a=[1, -2, 5],
    )
    resampled = resample(trip)
    assert resampled["energy_wh"] * 3600 == pytest.approx([360, -180, -360], abs=1e-9)
    # Current: mean of the recorded part of each interval.
    assert resampled["current_a"] == pytest.approx([1, -0.5, -2], abs=1e-12)
    assert resampled["voltage_v"] == pytest.approx([360, 360, 360])


def test_a_row_on_the_second_counts_for_that_second(raw_trip):
    # 0.1 + 0.2 != 0.3 in floating point: without rounding, 13.0 s would be found after sample 13.
    time_s = [0.3, 0.3 + 1.0, 0.3 + 2.0]
    trip = raw_trip(
        time_s,
        speed_mps=[1, 2, 3],
        ambient_c=[10, 20, 30],
        voltage_v=[1, 1, 1],
        current_a=[1, 1, 1],
    )
    resampled = resample(trip)
    assert resampled["ambient_c"].tolist() == [20, 30]
    assert resampled["speed_mps"] == pytest.approx([2, 3])


def test_speed_is_linear_between_real_updates_not_between_rows():
    # Held at 2 until 3 s because other channels made rows; the sensor moved from 2 to 5 at 1 m/s².
    time_s = np.array([0.0, 1.0, 2.0, 3.0, 6.0])
    speed = np.array([2.0, 2.0, 2.0, 5.0, 8.0])
    (line,) = between_updates(time_s, (speed,), np.array([1.0, 2.0, 4.0]))
    assert line == pytest.approx([3.0, 4.0, 6.0])


def test_a_standing_car_does_not_creep():
    # Updates every second, then 30 s at 0: the pull-away takes 1.5 usual spacings, not 30 s.
    time_s = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 34.0, 35.0])
    speed = np.array([4.0, 3.0, 2.0, 1.0, 0.0, 3.0, 6.0])
    (line,) = between_updates(time_s, (speed,), np.array([10.0, 32.0, 33.25]))
    assert line == pytest.approx([0.0, 0.0, 1.5])


def test_the_first_update_after_a_long_steady_value_takes_five_seconds_at_most():
    time_s = np.arange(101.0)
    values = np.where(time_s < 100, 0.0, 5.0)
    (line,) = between_updates(time_s, (values,), np.array([50.0, 95.0, 97.0]))
    assert line == pytest.approx([0.0, 0.0, 2.0])


def test_a_slow_logger_is_joined_by_lines_all_the_way():
    time_s = np.array([0.0, 8.0, 16.0])
    (line,) = between_updates(time_s, (np.array([0.0, 8.0, 4.0]),), np.array([4.0, 12.0]))
    assert line == pytest.approx([4.0, 6.0])


def test_position_moves_between_held_fixes(raw_trip):
    trip = raw_trip(
        [0, 1, 2, 3, 4],
        speed_mps=[1, 2, 3, 4, 5],
        latitude_deg=[42.0, 42.0, 42.2, 42.2, 42.4],
        longitude_deg=[-83.0, -83.0, -83.0, -83.0, -83.0],
    )
    resampled = resample(trip)
    assert resampled["latitude_deg"] == pytest.approx([42.1, 42.2, 42.3, 42.4])
    assert resampled["longitude_deg"] == pytest.approx([-83.0] * 4)
    assert "energy_wh" not in resampled


def test_flags_count_when_set_at_any_time_in_the_second(raw_trip):
    trip = raw_trip([0, 1.2, 1.4, 3], speed_mps=[1, 2, 3, 4], intersection=[0, 1, 0, 0])
    assert resample(trip)["intersection"].tolist() == [0, 1, 0]


def test_a_full_pack_reads_one(raw_trip):
    trip = raw_trip([0, 2], speed_mps=[1, 2], soc=[1.0000003, 0.5])
    assert resample(trip)["soc"].tolist() == [1.0, 0.5]


@pytest.mark.parametrize("source", ["energy_step_wh", "energy_total_wh"])
def test_energy_from_steps_and_counters(raw_trip, source):
    # 4 Wh between 0 and 2 s, -1 Wh to 3 s. The first step belongs to the time before the trip.
    values = {"energy_step_wh": [9, 4, -1], "energy_total_wh": [9, 13, 12]}[source]
    trip = raw_trip([0, 2, 3], speed_mps=[1, 2, 3], **{source: values})
    assert resample(trip)["energy_wh"] == pytest.approx([2, 2, -1])


def test_mean_is_centred_and_keeps_its_ends():
    assert centred_mean(np.array([1.0, 2.0, 3.0, 4.0, 9.0]), 5).tolist() == [1, 2, 3.8, 16 / 3, 9]


@settings(max_examples=60, deadline=None)
@given(
    gaps=st.lists(st.integers(1, 90), min_size=2, max_size=60),
    seed=st.integers(0, 2**31),
)
def test_resampling_conserves_energy_and_charge_whatever_the_spacing(gaps, seed):
    """Rows at multiples of 0.1 s, power of either sign: the sum of increments is the integral."""
    time_s = np.concatenate(([0], np.cumsum(gaps))) / 10
    draw = np.random.default_rng(seed)
    voltage = draw.uniform(300, 400, len(time_s))
    current = draw.uniform(-100, 200, len(time_s))
    channels = {"speed_mps": np.ones(len(time_s)), "voltage_v": voltage, "current_a": current}
    resampled = resample(RawTrip("1", time_s + 17.3, channels))
    direct = (voltage[:-1] * current[:-1] * np.diff(time_s)).sum() / 3600
    gross = np.abs(voltage[:-1] * current[:-1] * np.diff(time_s)).sum() / 3600
    assert resampled["energy_wh"].sum() == pytest.approx(direct, abs=1e-9 * gross)
    ends = np.minimum(np.arange(1, len(resampled["current_a"]) + 1), time_s[-1])
    observed_s = np.diff(np.concatenate(([0], ends)))
    charge = (current[:-1] * np.diff(time_s)).sum()
    assert (resampled["current_a"] * observed_s).sum() == pytest.approx(charge, abs=1e-6)
