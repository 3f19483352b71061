import numpy as np
import pytest

from fedwatt.elevation.grid import Grid
from fedwatt.errors import DataError
from fedwatt.journeys.fleet_routes import passes
from fedwatt.journeys.route import fixes, recorded_route, route_of
from fedwatt.telemetry import Trip

DEGREE_M = 6_371_000 * np.pi / 180


def north(metres):
    """Points due north from 42° N, 83° W."""
    metres = np.asarray(metres, dtype=float)
    return 42 + metres / DEGREE_M, np.full(len(metres), -83.0)


def test_a_route_has_equal_steps_whatever_its_points():
    dense = route_of("dense", *north(np.arange(0, 1001, 1.0)))
    sparse = route_of("sparse", *north([0, 300, 1000]))
    assert dense.steps == sparse.steps == 50
    assert dense.step_m == pytest.approx(20)
    np.testing.assert_allclose(dense.latitude_deg, sparse.latitude_deg, atol=1e-9)


def test_a_wandering_fix_adds_no_metres():
    wander = 5 * np.sin(np.arange(600))
    lat, lon = north(np.concatenate([np.arange(0, 500, 10.0), 500 + wander, [510, 1000]]))
    assert route_of("stop", lat, lon).metres == pytest.approx(1000, rel=0.02)


def test_headings_are_eight_and_north_is_the_first():
    cells = route_of("up", *north([0, 1000])).cells(Grid())
    assert set(cells % 8) == {0}
    lat, lon = north([0, 1000])
    down = route_of("down", lat[::-1], lon)
    assert set(down.cells(Grid()) % 8) == {4}
    assert set(down.cells(Grid()) // 8) == set(cells // 8)


def test_the_date_line_is_no_gap():
    lon = np.array([179.999, -179.999])
    route = route_of("fiji", np.zeros(2), lon)
    assert route.metres == pytest.approx(0.002 * DEGREE_M, rel=1e-3)


@pytest.mark.parametrize(
    ("lat", "lon", "sentence"),
    [
        ([42.0, 42.05], [-83.0, -83.0], "gap of 5.6 km from 42.0000°"),
        ([42.0], [-83.0], "only one place"),
        ([42.0, 42.0], [-83.0, -83.0], "only one place"),
        ([np.nan], [np.nan], "no point with a position"),
        ([0.0, 0.0], [0.0, 0.0], "no point with a position"),
        ([-113.7, -113.8], [42.0, 42.0], "seem to be exchanged"),
        ([42.0, 91.0], [400.0, -83.0], "which is nowhere"),
    ],
)
def test_what_is_no_route_is_refused_in_one_sentence(lat, lon, sentence):
    with pytest.raises(DataError, match=sentence):
        route_of("bad", np.array(lat), np.array(lon))


def test_a_million_points_are_a_route():
    route = route_of("long", *north(np.linspace(0, 100_000, 1_000_000)))
    assert route.metres == pytest.approx(100_000, rel=1e-3)


def a_trip(along, *, speed):
    lat, lon = north(along)
    energy = np.ones(len(along))
    channels = {"speed_mps": np.full(len(along), speed), "energy_wh": energy}
    return Trip("t", channels | {"latitude_deg": lat, "longitude_deg": lon})


def test_a_receivers_leap_is_left_out_without_asking_the_wheels():
    along = np.arange(0, 1000, 10.0)
    spike = along.copy()
    spike[50:54] += 2000
    clean, faulty = (a_trip(metres, speed=10.0) for metres in (along, spike))
    assert 50 not in fixes(faulty)
    assert recorded_route(faulty)[0].metres == pytest.approx(recorded_route(clean)[0].metres)
    other = a_trip(spike, speed=3.0)
    np.testing.assert_array_equal(fixes(other), fixes(faulty))


def test_a_recorded_trip_is_placed_along_its_route():
    route, at_m = recorded_route(a_trip(np.arange(0, 1000, 10.0), speed=10.0))
    assert route.metres == pytest.approx(990)
    np.testing.assert_allclose(at_m, np.arange(0, 1000, 10.0), atol=12)


def test_a_recorded_route_has_the_elevation_that_was_measured():
    trip = a_trip(np.arange(0, 1000, 10.0), speed=10.0)
    assert recorded_route(trip)[0].elevation_m is None
    climbing = Trip("t", trip.channels | {"elevation_m": 200 + 0.5 * np.arange(100)})
    route, _ = recorded_route(climbing)
    # 0.5 m for every 10 m: 5 cm for each metre of the way.
    np.testing.assert_allclose(route.elevation_m[1:] - 200, 0.05 * route.metres_at, atol=1.0)
    assert passes([climbing], Grid())[0].route.elevation_m is None
