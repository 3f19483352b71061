import numpy as np
import pytest

from fedwatt.telemetry.cleaning.glitches import (
    without_false_climate,
    without_glitches,
    without_still_elevation,
)

SECONDS = np.arange(40.0)


def drive(**changes):
    """40 s of ordinary driving with a wobbling speed and current; some channels replaced."""
    wobble = np.where(np.arange(40) % 2, 0.5, -0.5)
    return {
        "speed_mps": 10 + wobble,
        "voltage_v": np.full(40, 360.0),
        "current_a": 20 + wobble,
        **changes,
    }


def test_ordinary_driving_is_left_alone(raw_trip):
    (part,), account = without_glitches(raw_trip(SECONDS, **drive()), 10)
    assert part.rows == 40
    assert not account.entries


@pytest.mark.parametrize(
    ("channel", "value", "reason"),
    [
        ("speed_mps", -3.0, "speed_mps outside 0 to 70 m/s"),
        ("speed_mps", 90.0, "speed_mps outside 0 to 70 m/s"),
        ("voltage_v", 0.0, "voltage_v far from the trip's median"),
        ("voltage_v", 600.0, "voltage_v far from the trip's median"),
        ("current_a", -5000.0, "current_a outside -2000 to 2000 A"),
        ("current_a", np.inf, "current_a outside -2000 to 2000 A"),
    ],
)
def test_impossible_values_become_no_reading(raw_trip, channel, value, reason):
    channels = drive()
    channels[channel][7] = value
    (part,), account = without_glitches(raw_trip(SECONDS, **channels), 10)
    assert np.isnan(part.channels[channel][7])
    assert np.isfinite(np.delete(part.channels[channel], 7)).all()
    assert account.reasons("repaired", "values") == {reason: 1}


def test_the_code_for_no_temperature_becomes_no_reading(raw_trip):
    ambient_c = np.where(SECONDS < 5, -40.0, -39.5)
    (part,), account = without_glitches(raw_trip(SECONDS, **drive(ambient_c=ambient_c)), 10)
    assert np.isnan(part.channels["ambient_c"][:5]).all()
    assert (part.channels["ambient_c"][5:] == -39.5).all()
    assert account.reasons("repaired", "values") == {
        "ambient_c outside -60 to 60 °C, or -40: no sensor": 5
    }


@pytest.mark.parametrize("height", [30.0, 45.0])
def test_a_spike_in_speed_is_taken_out(raw_trip, height):
    channels = drive()
    channels["speed_mps"][12:14] = height
    (part,), account = without_glitches(raw_trip(SECONDS, **channels), 10)
    assert np.flatnonzero(np.isnan(part.channels["speed_mps"])).tolist() == [12, 13]
    assert account.reasons("repaired", "values") == {"spike in speed_mps": 2}


def test_a_jump_that_stays_cuts_the_trip(raw_trip):
    channels = drive()
    channels["speed_mps"][20:] += 25
    parts, account = without_glitches(raw_trip(SECONDS, **channels), 10)
    assert [part.rows for part in parts] == [20, 20]
    assert account.reasons("repaired", "trips") == {"cut where speed jumped": 1}


def test_hard_braking_is_no_glitch(raw_trip):
    # 9 m/s² for three seconds: an emergency stop.
    channels = drive(speed_mps=np.r_[np.full(20, 27.0), 18.0, 9.0, np.zeros(18)])
    parts, account = without_glitches(raw_trip(SECONDS, **channels), 100)
    assert len(parts) == 1
    assert not account.entries


def test_a_limit_of_acceleration_counts_the_seconds_between_readings(raw_trip):
    # 16 m/s within the 2 s between two readings are 8 m/s², which a car can brake.
    speed = np.r_[np.tile([27.0, 26.5], 10), 10.5, np.tile([10.0, 10.5], 9), 10.0]
    trip = raw_trip(2 * SECONDS, **drive(speed_mps=speed))
    parts, account = without_glitches(trip, 10)
    assert len(parts) == 1
    assert not account.entries


def test_a_frozen_bus_is_taken_out_while_moving_but_not_while_standing(raw_trip):
    channels = drive()
    channels["speed_mps"][10:30] = 12.0
    channels["current_a"][10:30] = 33.0
    (part,), account = without_glitches(raw_trip(SECONDS, **channels), 10)
    assert part.rows == 40 - 19  # the first of the 20 equal rows was real
    assert account.reasons("dropped", "rows") == {"speed and current frozen while moving": 19}
    channels["speed_mps"][10:30] = 0.0
    (part,), _ = without_glitches(raw_trip(SECONDS, **channels), 10)
    assert part.rows == 40


def test_cruise_control_is_no_stuck_sensor(raw_trip):
    (part,), _ = without_glitches(raw_trip(SECONDS, **drive(speed_mps=np.full(40, 30.0))), 10)
    assert part.rows == 40


def test_stuck_speed_and_stuck_current(raw_trip):
    time_s = np.arange(400.0)
    wobble = np.where(np.arange(400) % 2, 0.5, -0.5)
    stuck_speed = raw_trip(
        time_s, speed_mps=np.full(400, 20.0), voltage_v=np.full(400, 360.0), current_a=20 + wobble
    )
    _, account = without_glitches(stuck_speed, 10)
    assert account.reasons("dropped", "rows") == {"speed_mps stuck": 399}
    stuck_current = raw_trip(
        time_s,
        speed_mps=10 + 5 * np.sin(time_s / 10),
        voltage_v=np.full(400, 360.0),
        current_a=np.full(400, 20.0),
    )
    _, account = without_glitches(stuck_current, 10)
    assert account.reasons("dropped", "rows") == {"current_a stuck": 399}


def test_constant_current_at_a_steady_speed_is_no_stuck_sensor(raw_trip):
    # Speed varies by 1 m/s, less than the 5 m/s at which current would have to follow.
    speed = 20 + np.where(np.arange(400) % 2, 0.5, -0.5)
    trip = raw_trip(
        np.arange(400.0),
        speed_mps=speed,
        voltage_v=np.full(400, 360.0),
        current_a=np.full(400, 20.0),
    )
    (part,), account = without_glitches(trip, 10)
    assert part.rows == 400
    assert not account.entries


def test_positions_without_fix_and_jumps(raw_trip):
    latitude = 42 + np.arange(40) * 1e-4  # 11 m a second
    longitude = np.full(40, -83.0)
    latitude[0:3] = 41.0  # where the receiver was switched off
    latitude[10] = 0
    longitude[10] = 0
    latitude[20] += 1.0  # 111 km away and back
    trip = raw_trip(SECONDS, **drive(latitude_deg=latitude, longitude_deg=longitude))
    (part,), account = without_glitches(trip, 10)
    gone = np.flatnonzero(np.isnan(part.channels["latitude_deg"])).tolist()
    assert gone == [0, 1, 2, 10, 20]
    assert account.reasons("repaired", "values") == {
        "position jumped": 4,
        "position without a fix": 1,
    }


def climate_trips(raw_trip, **watts):
    """Four trips of ten minutes with one power each."""
    second = np.arange(0.0, 601.0)
    powers = {name: power + np.zeros(601) for name, power in watts.items()}
    return [raw_trip(second, speed_mps=np.full(601, 10.0), **powers) for _ in range(4)]


def test_climate_power_that_stands_at_kilowatts_is_unknown(raw_trip):
    trips = climate_trips(raw_trip, heater_w=40_000.0, ac_w=300.0)
    believed, account = without_false_climate(trips, "passenger")
    assert not any(trip.has("heater_w") for trip in believed)
    assert all((trip.channels["ac_w"] == 300.0).all() for trip in believed)
    assert account.reasons("dropped", "channels") == {"heater_w stands at 40.0 kW in all trips": 1}
    assert "heater_w stands at 40.0 kW" in account.lost_channels()[0]


def test_a_heater_that_settles_is_believed(raw_trip):
    settling = 1_000 + 4_000 * np.exp(-np.arange(601.0) / 200)
    believed, account = without_false_climate(
        climate_trips(raw_trip, heater_w=settling), "passenger"
    )
    assert all(trip.has("heater_w") for trip in believed)
    assert not account.entries


def test_climate_power_above_that_of_a_car_is_left_out(raw_trip):
    settling = np.where(np.arange(601) < 50, 20_000.0, 500.0)
    trips = climate_trips(raw_trip, heater_w=settling)
    believed, account = without_false_climate(trips, "passenger")
    assert np.isnan(believed[0].channels["heater_w"][:50]).all()
    assert (believed[0].channels["heater_w"][50:] == 500.0).all()
    assert account.reasons("repaired", "values") == {"heater_w above 15 kW": 200}
    (line,) = [line for line in account.sentences() if "reading" in line]
    assert line == "Cleaning: 200 readings left out: 200 heater_w above 15 kW."
    # A bus may heat with 20 kW.
    assert without_false_climate(trips, "bus")[1].count("repaired", "values") == 0


def test_elevation_that_stands_still_while_driving_is_left_out(raw_trip):
    second = np.arange(0.0, 601.0)
    # 6 km at 10 m/s: frozen after 200 s, that is for 4 km.
    elevation = np.minimum(second, 200.0)
    trip = raw_trip(second, speed_mps=10 + np.sin(second), elevation_m=elevation)
    (part,), account = without_glitches(trip, 10.0)
    assert np.isfinite(part.channels["elevation_m"][:200]).all()
    assert np.isnan(part.channels["elevation_m"][200:]).all()
    assert account.reasons("repaired", "values") == {"elevation_m the same for over 2 km": 401}
    flat = raw_trip(second[:190], speed_mps=10 + np.sin(second[:190]), elevation_m=np.zeros(190))
    assert without_glitches(flat, 10.0)[0][0].has("elevation_m")


def test_elevation_that_never_changes_in_a_trip_is_left_out(raw_trip):
    second = np.arange(0.0, 121.0)

    # 1.2 km a trip: two are over 2 km together, and no trip is by itself.
    def trips(*heights):
        return [raw_trip(second, speed_mps=np.full(121, 10.0), elevation_m=h) for h in heights]

    level = np.full(121, 250.0)
    believed, account = without_still_elevation(trips(level, level + 1))
    assert not any(trip.has("elevation_m") for trip in believed)
    assert account.reasons("dropped", "channels") == {"elevation_m never changes within a trip": 1}
    for heights in ((level,), (level, np.linspace(250, 260, 121))):
        believed, account = without_still_elevation(trips(*heights))
        assert all(trip.has("elevation_m") for trip in believed)
        assert not account.entries
