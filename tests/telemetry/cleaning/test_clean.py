"""

A trip that was cut into useless parts is dropped with what cut it.
"""

import numpy as np
import pytest

from fedwatt.errors import SettingError
from fedwatt.telemetry.cleaning import PLAIN_CLEANING, Cleaning
from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.cleaning.clean import clean_trip, clean_vehicle
from fedwatt.telemetry.trip import RawTrip, Vehicle

CLEANING = Cleaning(minimum_trips=1)
CAR = Vehicle("car", (), labels="measured")


def drive(name="1", seconds=200, speed=10.0, current=20.0, **more):
    time_s = np.arange(seconds + 1.0)
    wobble = np.where(np.arange(seconds + 1) % 2, 0.5, -0.5)
    channels = {
        "speed_mps": speed + wobble,
        "voltage_v": np.full(seconds + 1, 360.0),
        "current_a": current + wobble,
        **more,
    }
    return RawTrip(name, time_s, channels)


def balanced(account):
    for unit in ("rows", "trips"):
        lost = account.count("dropped", unit)
        assert account.count("read", unit) == account.count("kept", unit) + lost, unit


def test_a_good_trip_keeps_every_row():
    (part,), account = clean_trip(drive(), CLEANING)
    # 360 V * 20 A for 200 s = 400 Wh; the wobble cancels (100 intervals each way).
    assert part.channels["energy_wh"].sum() == pytest.approx(400, rel=1e-12)
    assert account.count("kept", "rows") == 201
    balanced(account)


@pytest.mark.parametrize(
    ("trip", "reason"),
    [
        (drive(seconds=60), "under 120 s"),
        (drive(speed=1.0), "under 500 m"),
        (drive(speed_mps=np.full(201, np.nan)), "no speed"),
        (drive(voltage_v=np.full(201, np.nan)), "no pack voltage"),
        (drive(voltage_v=np.full(201, 3.0)), "no pack voltage"),
    ],
)
def test_an_unusable_trip_is_dropped_with_its_reason(trip, reason):
    parts, account = clean_trip(trip, CLEANING)
    assert parts == []
    assert account.reasons("dropped", "trips") == {reason: 1}
    balanced(account)


def test_one_bad_trip_never_spoils_a_vehicle():
    bad = drive("2", current_a=np.full(201, np.nan))
    vehicle, account = clean_vehicle(CAR, [drive("1"), bad, drive("3")], CLEANING)
    assert [trip.name for trip in vehicle.trips] == ["1", "3"]
    balanced(account)


def test_parts_of_a_trip_get_letters():
    complete = drive("706", seconds=400)
    gap = complete.take((complete.time_s < 180) | (complete.time_s > 220))
    vehicle, account = clean_vehicle(CAR, [gap], CLEANING)
    assert [trip.name for trip in vehicle.trips] == ["706", "706b"]
    assert [trip.recording for trip in vehicle.trips] == ["706", "706"]
    assert account.count("kept", "trips") == 1
    assert account.count("kept", "parts") == 2
    assert vehicle.facts["account"]["repaired"]["trips"] == {"cut at a gap over 10 s": 1}
    balanced(account)


def test_a_number_used_twice_gives_two_names():
    vehicle, _ = clean_vehicle(CAR, [drive("7"), drive("7")], CLEANING)
    assert [trip.name for trip in vehicle.trips] == ["7", "7b"]
    assert [trip.recording for trip in vehicle.trips] == ["7", "7b"]  # two days, two recordings


def test_inputs_that_never_report_get_a_stated_value():
    cold = drive("2", ambient_c=np.full(201, -5.0), heater_w=np.full(201, 900.0))
    vehicle, account = clean_vehicle(CAR, [drive("1"), cold], CLEANING)
    silent, _ = vehicle.trips
    assert set(silent.channels["ambient_c"]) == {-5.0}  # the vehicle's own median
    assert np.isnan(silent.channels["heater_w"]).all()  # unknown, which is not off
    assert np.isnan(silent.channels["ac_w"]).all()
    assert account.reasons("repaired", "parts") == {
        "no ac_w, unknown": 2,
        "no ambient_c, taken from the vehicle's other trips": 1,
        "no heater_w, unknown": 1,
    }


def test_a_channel_in_a_wrong_unit_is_left_out_with_the_range_that_was_read():
    full = np.linspace(31.0, 96.0, 201)  # per cent, where a share belongs
    vehicle, account = clean_vehicle(CAR, [drive("1", soc=full), drive("2", soc=full)], CLEANING)
    assert all("soc" not in trip.channels for trip in vehicle.trips)
    assert account.lost_channels() == [
        "soc is 31 to 96, outside 0 to 1.001, and left out in 1 vehicle. Is its unit another?"
    ]
    other, more = clean_vehicle(CAR, [drive("1", soc=full / 2)], CLEANING)
    assert other is not None and len((account + more).lost_channels()) == 1
    # One reading within the limits shows that the unit is right.
    _, sound = clean_vehicle(CAR, [drive("1", soc=np.where(full < 40, 0.5, full))], CLEANING)
    assert sound.lost_channels() == []


def test_too_few_trips_leave_the_vehicle_out():
    vehicle, account = clean_vehicle(CAR, [drive()], Cleaning(minimum_trips=2))
    assert vehicle is None
    assert account.reasons("dropped", "vehicles") == {"under 2 usable trips": 1}
    assert account.reasons("dropped", "trips") == {"of vehicles left out": 1}
    assert account.count("kept", "trips") == 0
    balanced(account)
    _, account = clean_vehicle(CAR, [drive()], Cleaning(minimum_trips=1, minimum_metres=1e9))
    assert account.reasons("dropped", "vehicles") == {"without a usable trip": 1}


def north(speed):
    """Positions of a car that drives due north at `speed`."""
    metres = np.arange(201) * speed
    return {"latitude_deg": 42 + metres / 111_195, "longitude_deg": np.full(201, -83.7)}


def test_kmh_read_as_mps_is_refused_with_or_without_positions():
    fast = drive(speed=54.0)  # 54 km/h, unconverted
    vehicle, account = clean_vehicle(CAR, [fast], CLEANING)
    assert vehicle is None
    (reason,) = account.reasons("dropped", "vehicles")
    assert reason == "over 5% of speeds above 50 m/s (is speed in km/h read as m/s?)"
    slow = drive(speed=36.0, **north(10.0))
    vehicle, account = clean_vehicle(CAR, [slow], CLEANING)
    assert vehicle is None
    assert "3.60 times distance by position" in next(iter(account.reasons("dropped", "vehicles")))


def test_mps_read_as_kmh_is_refused_by_position():
    trips = [drive(str(n), speed=10 / 3.6, **north(10.0)) for n in range(2)]
    vehicle, account = clean_vehicle(CAR, trips, CLEANING)
    assert vehicle is None
    assert "0.28 times" in next(iter(account.reasons("dropped", "vehicles")))


def test_a_reversed_current_is_refused_where_only_the_pack_drives():
    trips = [drive(str(n), current=-20.0) for n in range(3)]
    vehicle, account = clean_vehicle(CAR, trips, CLEANING)
    assert vehicle is None
    assert "is the sign of current" in next(iter(account.reasons("dropped", "vehicles")))
    assert clean_vehicle(CAR, trips, CLEANING, electric=False)[0] is not None


def test_unlabelled_driving_is_kept_when_asked_for():
    trip = RawTrip("1", drive().time_s, {"speed_mps": drive().channels["speed_mps"]})
    vehicle, _ = clean_vehicle(CAR, [trip], Cleaning(minimum_trips=1, unlabelled=True))
    assert vehicle.labels == "none"
    assert "energy_wh" not in vehicle.trips[0].channels
    assert clean_vehicle(CAR, [trip], CLEANING)[0] is None


@pytest.mark.parametrize(
    "setting",
    [{"minimum_trips": 0}, {"minimum_seconds": -1}, {"maximum_gap_s": 0.5}],
)
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(SettingError, match=next(iter(setting))):
        Cleaning(**setting)


def test_the_account_is_the_sum_over_trips():
    trips = [drive("1"), drive("2", seconds=60)]
    _, account = clean_vehicle(CAR, trips, CLEANING)
    parts = Account.total(clean_trip(trip, CLEANING)[1] for trip in trips)
    assert account.count("read", "rows") == parts.count("read", "rows") == 262


def trip(step: float = 1.0, seconds: int = 600, **changed: np.ndarray | float) -> RawTrip:
    time_s = np.arange(0.0, seconds, step)
    wave = np.sin(time_s / 9)
    channels = {
        "speed_mps": 10 + 5 * wave,
        "voltage_v": np.full(len(time_s), 360.0),
        "current_a": 20 + 10 * wave,
    }
    return RawTrip("1", time_s, {**channels, **{n: v + 0 * time_s for n, v in changed.items()}})


EVERY_40TH = np.where(np.arange(600) % 40 == 0, 20.0 + np.arange(600) / 100, np.nan)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (
            trip(step=15.0),
            "rows about 15 s apart, over the gap limit of 10 s (--max-gap 38 bridges them)",
        ),
        (trip(speed_mps=-10 - np.sin(np.arange(600.0))), "speed_mps mostly below 0 m/s"),
        (trip(speed_mps=90 + np.sin(np.arange(600.0))), "speed_mps mostly above 70 m/s"),
        (trip(speed_mps=np.arange(600.0) % 20 - 10), "speed_mps mostly below 0 m/s"),
        (
            trip(current_a=EVERY_40TH),
            "readings of current_a about 40 s apart, over the gap limit of 10 s "
            "(--max-gap 100 bridges them)",
        ),
        (trip(speed_mps=10.0, current_a=20.0), "speed_mps stuck"),
        (trip(seconds=119), "under 120 s"),
    ],
)
def test_the_cause_is_told(raw: RawTrip, reason: str) -> None:
    parts, account = clean_trip(raw, PLAIN_CLEANING)
    assert parts == []
    assert account.reasons("dropped", "trips") == {reason: 1}
    dropped = account.count("dropped", "rows")
    assert account.count("read", "rows") == raw.rows == dropped


def test_holes_are_told_where_nothing_more_particular_is_known() -> None:
    raw = trip()
    remaining = np.arange(600) % 100 < 80  # holes of 20 s, parts of 80 s
    _, account = clean_trip(raw.take(remaining), PLAIN_CLEANING)
    assert account.reasons("dropped", "trips") == {"in parts under 120 s between gaps": 1}
