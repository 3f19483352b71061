"""Features: by hand, from inputs only, and refused where a channel is missing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedwatt.errors import DataError, SettingError
from fedwatt.telemetry import Trip
from fedwatt.windows import FEATURE_SETS, FEATURES, Feature, feature_names
from fedwatt.windows.features import (
    STREAMING_DELAY_S,
    acceleration,
    feature_columns,
    trip_features,
)

from .toys import INPUTS, LABELS, make_trip

HIDDEN = [*LABELS, "latitude_deg", "longitude_deg"]


def test_acceleration_of_a_ramp_is_its_slope():
    assert acceleration(np.arange(10.0) * -1.5)[2:-2] == pytest.approx(np.full(6, -1.5))


def test_acceleration_by_hand():
    # (v[t+2] + v[t+1] - v[t-1] - v[t-2]) / 6 with the ends held.
    speed_mps = np.array([0.0, 3.0, 6.0, 3.0])
    assert acceleration(speed_mps) * 6 == pytest.approx([9, 9, 3, -3])


@given(st.lists(st.floats(0, 40), min_size=8, max_size=30), st.floats(0, 40))
def test_acceleration_looks_no_further_ahead_than_the_stated_delay(speeds, later):
    speed_mps = np.array(speeds)
    changed = speed_mps.copy()
    changed[-1] = later
    settled = len(speeds) - 1 - STREAMING_DELAY_S
    assert np.array_equal(acceleration(speed_mps)[:settled], acceleration(changed)[:settled])


def test_late_features_by_hand():
    trip = make_trip("1", 6, speed_mps=np.array([0.0, 3.0, 6.0, 3.0, 3.0, 9.0]))
    late, power = trip_features(trip, ("acceleration_late", "specific_power_late"), "car").T
    # (v[t] + v[t-1] - v[t-3] - v[t-4]) / 6, held at 0 before the trip; times the speed at t-2.
    assert late * 6 == pytest.approx([0, 3, 9, 9, 3, 3])
    assert power * 6 == pytest.approx([0, 0, 0, 27, 18, 9])


@given(st.lists(st.floats(0, 40), min_size=8, max_size=30), st.floats(0, 40))
def test_causal_features_do_not_look_ahead(speeds, later):
    names = FEATURE_SETS["causal"]
    before, after = (
        make_trip("1", len(speeds), speed_mps=np.array([*speeds[:-1], last]))
        for last in (speeds[-1], later)
    )
    first, second = (trip_features(trip, names, "car")[:-1] for trip in (before, after))
    assert np.array_equal(first, second)


def test_one_second_of_every_feature_by_hand():
    second = {"speed_mps": 10.0, "ambient_c": 3.0, "ac_w": 500.0, "heater_w": 2000.0}
    second |= {"grade": -0.02, "speed_limit_mps": 13.0, "intersection": 1.0}
    second |= {"bus_stop": 0.0, "focus_point": 1.0, "climb_m": 0.0, "descent_m": 0.3}
    second["climb_known"] = 1.0
    trip = Trip("1", {name: np.full(5, value) for name, value in second.items()})
    values = trip_features(trip, tuple(FEATURES), "car")[0]
    expected = {
        "speed": 10.0,
        "acceleration": 0.0,
        "speed_squared": 100.0,
        "speed_cubed": 1000.0,
        "specific_power": 0.0,
        "acceleration_late": 0.0,
        "specific_power_late": 0.0,
        "ambient": 3.0,
        "ac": 0.5,
        "heater": 2.0,
        "drag": 1000.0 * 293.15 / 276.15,
        "driving": 0.0,
        "braking": 0.0,
        "cold": 15.0,
        "cold_squared": 225.0,
        "heat": 0.0,
        "warm_up": 1.0,
        "cold_start": 15.0,
        "hot_start": 0.0,
        "cabin_warm_up": 15.0,
        "tyre_warm_up": 10.0,
        "cold_tyres": 150.0,
        "wheel_drive": 0.0,
        # 0.3 m down a second, tyres worth 0.1 m of it, and the air.
        "wheel_brake": -9.81 * 0.2 + 0.25 * 293.15 / 276.15,
        # That power at 10 m/s is a tenth of it as a force.
        "force_squared": (-0.1962 + 0.025 * 293.15 / 276.15) ** 2,
        "brake_squared": (-1.962 + 0.25 * 293.15 / 276.15) ** 2,
        "grade": -0.02,
        "climb": -0.2,
        "ascent": 0.0,
        "descent": 0.3,
        "climb_known": 1.0,
        "speed_limit": 13.0,
        "intersection": 1.0,
        "bus_stop": 0.0,
        "focus_point": 1.0,
    }
    assert dict(zip(FEATURES, values, strict=True)) == pytest.approx(expected)


def test_squares_are_bounded_where_a_recorded_speed_jumps():
    level = {name: np.zeros(6) for name in ("climb_m", "descent_m")}
    speed = np.array([0.0, 0.0, 60.0, 60.0, 0.0, 0.0])
    trip = Trip("1", {"speed_mps": speed, "ambient_c": np.full(6, 20.0), **level})
    force, braking = trip_features(trip, ("force_squared", "brake_squared"), "car").T
    assert (force.max(), braking.max()) == (16.0, 3600.0)


def test_driving_and_braking_share_the_specific_power():
    trip = Trip("1", {"speed_mps": np.array([0.0, 2.0, 6.0, 6.0, 2.0, 0.0])})
    power, driving, braking = trip_features(trip, ("specific_power", "driving", "braking"), "car").T
    assert power == pytest.approx(driving + braking)
    assert driving.max() > 0 > braking.min()


@given(
    seed=st.integers(0, 10**6),
    channel=st.sampled_from(HIDDEN),
    value=st.floats(allow_nan=True, allow_infinity=True),
)
def test_no_feature_depends_on_labels_or_position(seed, channel, value):
    trip = make_trip("1", 12, seed)
    changed = make_trip("1", 12, seed, **{channel: np.full(12, value)})
    without = Trip("1", {name: trip.channels[name] for name in INPUTS})
    features = trip_features(trip, tuple(FEATURES), "car")
    assert np.array_equal(features, trip_features(changed, tuple(FEATURES), "car"))
    assert np.array_equal(features, trip_features(without, tuple(FEATURES), "car"))


@pytest.mark.parametrize("channel", HIDDEN)
def test_a_feature_that_asks_for_a_label_or_position_is_refused(channel):
    with pytest.raises(SettingError, match=f"cannot need '{channel}'"):
        Feature("?", (channel,), lambda inputs: inputs[channel])


def test_recipes_join_sets_and_single_features_without_repeats():
    assert feature_names("base") == FEATURE_SETS["base"]
    assert feature_names("heater, base , grade") == (
        "heater",
        *(name for name in FEATURE_SETS["base"] if name != "heater"),
        "grade",
    )


@pytest.mark.parametrize("recipe", ["bsae", "", "base,,grade", "base, energy_wh"])
def test_unknown_recipes_are_refused(recipe):
    with pytest.raises(SettingError, match="Unknown feature set or feature"):
        feature_names(recipe)


def test_every_set_is_made_of_known_features():
    assert {name for names in FEATURE_SETS.values() for name in names} <= set(FEATURES)


def test_a_missing_channel_is_refused_not_filled():
    trip = make_trip("7", 5, heater_w=None)
    with pytest.raises(DataError, match=r"'car-1', trip '7' has no channel 'heater_w'"):
        trip_features(trip, feature_names("base"), "car-1")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_gaps_name_vehicle_trip_channel_and_second(bad):
    ambient_c = np.array([1.0, 1.0, bad, 1.0, bad])
    with pytest.raises(DataError) as refusal:
        trip_features(make_trip("7", 5, ambient_c=ambient_c), feature_names("base"), "car-1")
    for part in ("'car-1'", "trip '7'", "'ambient_c'", "2 of 5 samples", "first at second 2"):
        assert part in str(refusal.value)


def test_cabin_and_tyres_warm_up():
    # Two minutes into a trip at 8 °C and 10 m/s: e^(-1) of 10 °C, and e^(-0.2) of 10 m/s.
    channels = {"speed_mps": np.full(121, 10.0), "ambient_c": np.full(121, 8.0)}
    names = ("cabin_warm_up", "tyre_warm_up", "cold_tyres")
    result = feature_columns(channels, names)[120]
    tyres = 10 * np.exp(-0.2)
    assert result == pytest.approx([10 * np.exp(-1), tyres, 10 * tyres])


def test_a_heater_that_nothing_reports_is_unknown_and_not_off():
    # At 8 °C, 10 °C below comfort: 0.38 kW for long and 0.29 kW more at the start.
    channels = {
        "speed_mps": np.full(3001, 10.0),
        "ambient_c": np.full(3001, 8.0),
        "heater_w": np.full(3001, np.nan),
        "ac_w": np.zeros(3001),
    }
    unreported = trip_features(Trip("1", channels), ("heater", "ac"), "car")
    assert unreported[0] == pytest.approx([0.67, 0.0])
    assert unreported[3000] == pytest.approx([0.38, 0.0], abs=1e-4)
    off = trip_features(Trip("1", {**channels, "heater_w": np.zeros(3001)}), ("heater",), "car")
    assert not off.any()
