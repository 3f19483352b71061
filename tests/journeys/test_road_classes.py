import numpy as np
import pytest

from fedwatt.elevation.grid import Grid
from fedwatt.journeys.driving_field import (
    FIRST_TURN,
    NO_PASSES,
    SUMS,
    DrivingField,
    RoadClasses,
    published,
    road_classes,
)
from fedwatt.journeys.route import route_of
from fedwatt.journeys.route_model import route_rise_m

from .towns import routes_by_vehicle


def corner():
    """A kilometre to the north and one to the east, on the equator."""
    north = np.concatenate([np.linspace(0, 0.009, 51), np.full(50, 0.009)])
    east = np.concatenate([np.zeros(51), np.linspace(0, 0.009, 51)[1:]])
    return route_of("corner", north, 10 + east)


def test_a_corner_is_a_turn_and_the_straight_before_it_a_kilometre_long():
    route = corner()
    classes = road_classes(route)
    turns = np.flatnonzero(classes >= FIRST_TURN)
    assert abs(turns.mean() * route.step_m - 1000) < 20
    assert (classes[turns] == FIRST_TURN + 2).any()  # 90 degrees
    # 500 m from both: the fifth distance, the fourth length, no bend.
    assert classes[25] == 430


def test_roads_give_the_speed_of_their_class_where_nobody_has_driven():
    fleet = published([vehicle_routes.roads for vehicle_routes in routes_by_vehicle(4).values()], 3)
    roads = RoadClasses(fleet)
    route = corner()
    expected = roads.read(route)
    np.testing.assert_allclose(expected[:, SUMS.index("route_m")], 1.0)
    field = DrivingField(Grid(cell_m=80.0), NO_PASSES, roads)
    rates, reference = field.along(route)
    np.testing.assert_allclose(rates, expected[:, 1:])
    assert not reference.any()
    assert 1 / rates[:, SUMS.index("seconds") - 1].max() > 3  # m/s


def test_classes_of_fewer_than_k_vehicles_are_not_published():
    sums = [vehicle_routes.roads for vehicle_routes in routes_by_vehicle(3).values()]
    assert len(published(sums, 3).keys)
    assert not len(published(sums[:2], 3).keys)


def test_elevation_that_comes_with_a_route_is_its_climb():
    # 2 km up a slope of 3 %, then 1 km without any elevation.
    north = np.linspace(0.0, 0.027, 151)
    height = np.where(north <= 0.018 + 1e-9, 60.0 * north / 0.018, np.nan)
    route = route_of("slope", north, np.full(151, 10.0), height)
    rise, reference = route_rise_m(route, None)
    assert rise.sum() == pytest.approx(60, abs=4)  # smoothing flattens the ends
    assert reference.mean() == pytest.approx(2 / 3, abs=0.02)
    assert (rise[reference == 0] == 0).all()


def test_noise_of_elevations_is_no_climb():
    rng = np.random.default_rng(0)
    north = np.linspace(0.0, 0.09, 501)
    route = route_of("plain", north, np.full(501, 10.0), rng.normal(0, 1.0, 501))
    rise, _ = route_rise_m(route, None)
    raw = np.abs(np.diff(route.elevation_m)).sum()
    assert np.abs(rise).sum() < raw / 5
