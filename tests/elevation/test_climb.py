import numpy as np
import pytest

from fedwatt.elevation.climb import (
    climbing,
    rise_m,
    trusted_positions,
    with_elevation,
    with_measured_elevation,
)
from fedwatt.elevation.elevation_map import empty_map
from fedwatt.elevation.grid import Grid
from fedwatt.telemetry import Trip, Vehicle

SAME = np.zeros(8, dtype=np.int64)
DEGREE_M = 6_371_000 * np.pi / 180


def straight(speed_mps: np.ndarray, **other) -> Trip:
    """North from 42°, as fast as the wheels say."""
    moved = np.cumsum(speed_mps) - speed_mps[0]
    channels = {
        "speed_mps": speed_mps,
        "latitude_deg": 42 + moved / DEGREE_M,
        "longitude_deg": np.full(len(moved), -83.0),
        "energy_wh": np.zeros(len(moved)),
    }
    return Trip("t", channels | other)


def test_a_tunnel_spreads_the_difference_over_the_metres_driven():
    speed = np.array([10.0, 10, 10, 20, 10, 10, 10, 10])
    elevation = np.array([0.0, 1, np.nan, np.nan, 5, 5, 4, 4])
    # 4 m over 10 + 20 + 10 m.
    assert rise_m(elevation, SAME, speed) == pytest.approx([0, 1, 1, 2, 1, 0, -1, 0])


def test_a_ferry_and_a_parked_vehicle_do_not_climb():
    elevation = np.array([0.0, 1, 2, 3, 4, 5, 6, 7])
    assert (rise_m(elevation, SAME, np.zeros(8)) == 0).all()


def test_wheels_that_stand_do_not_climb_while_the_fix_drifts():
    # At 0.2 m/s, below 0.3, a drift of 0.5 m per second would be 2.5 m of climb per metre.
    elevation = np.arange(8) / 2
    speed = np.full(8, 0.2)
    assert rise_m(elevation, SAME, speed).tolist() == [0.0] * 8


def test_between_regions_and_on_cliffs_climb_is_not_known():
    speed = np.full(8, 10.0)
    elevation = np.array([0.0, 0, 1, 1, 1, 9, 9, 9])
    region = np.array([0, 0, 1, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(
        rise_m(elevation, region, speed), [0, 0, np.nan, 0, 0, np.nan, 0, 0]
    )


def test_beyond_the_first_and_the_last_fix_climb_is_not_known():
    elevation = np.array([np.nan, 0, 1, 1, 1, 1, 1, np.nan])
    np.testing.assert_array_equal(
        rise_m(elevation, SAME, np.full(8, 10.0)), [np.nan, 0, 1, 0, 0, 0, 0, np.nan]
    )


def test_where_climb_is_not_known_the_road_is_level_and_marked():
    trip = climbing(straight(np.full(3, 10.0)), np.array([0.5, np.nan, -0.25]))
    assert trip.channels["climb_m"].tolist() == [0.5, 0, 0]
    assert trip.channels["descent_m"].tolist() == [0, 0, 0.25]
    assert trip.channels["climb_known"].tolist() == [1, 0, 1]


def test_good_positions_are_all_trusted():
    *_, trusted = trusted_positions(straight(np.full(30, 15.0)))
    assert trusted.all()


def test_a_leap_and_its_surroundings_are_not_trusted():
    trip = straight(np.full(40, 15.0))
    latitude = trip.channels["latitude_deg"].copy()
    latitude[20] += 0.01
    spoiled = Trip("t", {**trip.channels, "latitude_deg": latitude})
    *_, trusted = trusted_positions(spoiled)
    assert not trusted[17:24].any()
    assert trusted[:15].all()
    assert trusted[27:].all()


@pytest.mark.parametrize(("offset_m", "trusts"), [(20.0, True), (60.0, False)])
def test_a_leap_is_measured_against_the_wheels_in_metres_per_second(offset_m, trusts):
    # At 15 m/s a second's move may be 1.5 · 15 + 15 = 37.5 m: 15 + 20 m may, 15 + 60 m may not.
    trip = straight(np.full(40, 15.0))
    latitude = trip.channels["latitude_deg"].copy()
    latitude[20] += offset_m / DEGREE_M
    *_, trusted = trusted_positions(Trip("t", {**trip.channels, "latitude_deg": latitude}))
    assert trusted[20] == trusts


def test_a_frozen_receiver_is_not_trusted_but_a_parked_vehicle_is():
    speed = np.full(60, 15.0)
    speed[:20] = 0.0
    trip = straight(speed)
    latitude = trip.channels["latitude_deg"].copy()
    latitude[30:40] = latitude[30]
    frozen = Trip("t", {**trip.channels, "latitude_deg": latitude})
    *_, trusted = trusted_positions(frozen)
    assert trusted[:26].all()
    assert not trusted[31:40].any()


@pytest.mark.parametrize(
    ("latitude", "longitude"), [(np.nan, 0.0), (0.0, 0.0), (91.0, 0.0), (np.inf, np.inf)]
)
def test_positions_that_are_none_are_not_trusted(latitude, longitude):
    spoiled = straight(
        np.full(5, 1.0), latitude_deg=np.full(5, latitude), longitude_deg=np.full(5, longitude)
    )
    *_, trusted = trusted_positions(spoiled)
    assert not trusted.any()


def test_without_positions_a_vehicle_gets_level_roads():
    trip = Trip("t", {"speed_mps": np.ones(9), "energy_wh": np.ones(9)})
    (flat,) = with_elevation(Vehicle("v", (trip,)), empty_map(Grid())).trips
    assert (flat.channels["climb_m"] == 0).all()
    assert (flat.channels["descent_m"] == 0).all()
    assert (flat.channels["climb_known"] == 0).all()


def test_measured_elevation_stands_in_for_a_learned_field():
    trip = straight(np.full(4, 10.0), elevation_m=np.array([5.0, 6.0, 5.5, 5.5]))
    (measured,) = with_measured_elevation(Vehicle("v", (trip,))).trips
    assert measured.channels["climb_m"] == pytest.approx([0, 1, 0, 0])
    assert measured.channels["descent_m"] == pytest.approx([0, 0, 0.5, 0])
    # A trip without the channel has no climb that is known, and so the level model.
    (level,) = with_measured_elevation(Vehicle("v", (straight(np.ones(3)),))).trips
    assert level.channels["climb_known"].tolist() == [0, 0, 0]
