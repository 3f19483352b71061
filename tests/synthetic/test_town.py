"""Hills, roads and routes of the invented town."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from fedwatt.synthetic.routes import SHORTEST_TRIP_M, STEP_M, itinerary, trace
from fedwatt.synthetic.town import (
    EARTH_RADIUS_M,
    MOTORWAY,
    SLOPE_RMS,
    Landscape,
    daily_mean_c,
    degrees,
    draw_landscape,
    homes,
    town,
    trip_days,
)


def test_one_wave_by_hand():
    values = np.array([1.0])
    hill = Landscape(100.0, 20 * values, 2 * np.pi / 1000 * values, 0 * values, 0 * values)
    x_m = np.array([0.0, 250.0, 500.0, 1000.0])
    assert hill.elevation_m(x_m, 7 * x_m) == pytest.approx([120, 100, 80, 120])


def test_slopes_are_as_steep_as_stated():
    elevations = draw_landscape(0)
    x_m, y_m = np.random.default_rng(0).uniform(-8000, 8000, (2, 20_000))
    rise_x = elevations.elevation_m(x_m + 0.5, y_m) - elevations.elevation_m(x_m - 0.5, y_m)
    rise_y = elevations.elevation_m(x_m, y_m + 0.5) - elevations.elevation_m(x_m, y_m - 0.5)
    # The map holds few periods of its longest waves, hence 15 %.
    assert np.sqrt(np.mean(rise_x**2 + rise_y**2)) == pytest.approx(SLOPE_RMS, rel=0.15)
    assert np.hypot(rise_x, rise_y).max() < 0.12


def test_every_home_reaches_every_place():
    roads = town(0).roads
    place = int(town(0).places[0])
    for start in range(0, len(roads.neighbours), 50):
        assert roads.path_to(place, start)[-1] == place
    assert len(homes(roads, 0, 2600)) > 100
    assert len(homes(roads, 5000, 8200)) > 100


def test_the_quickest_way_is_quickest():
    # Held against Dijkstra's algorithm in scipy.
    roads = town(0).roads
    place = int(town(0).places[3])
    start, end, road_s = roads.directed
    network = csr_array((road_s, (start, end)))
    seconds = dijkstra(network, indices=place)
    for node in (0, 500, 1500):
        path = roads.path_to(place, node)
        assert sum(network[a, b] for a, b in pairwise(path)) == pytest.approx(seconds[node])


def test_trips_follow_on_each_other_along_roads():
    roads = town(0).roads
    _, paths = itinerary(town(0), 0, "car", 40)
    assert len(paths) == 40
    for path, following in pairwise(paths):
        assert path[-1] == following[0]
    for path in paths:
        assert all(b in roads.neighbours[a] for a, b in pairwise(path))
        ends = roads.x_m[path[0]] - roads.x_m[path[-1]], roads.y_m[path[0]] - roads.y_m[path[-1]]
        assert np.hypot(*ends) > SHORTEST_TRIP_M


def test_roads_are_driven_again_by_the_same_and_by_other_vehicles():
    used = []
    for number in range(10):
        _, paths = itinerary(town(0), 0, f"car-{number}", 40)
        roads = [frozenset(pair) for path in paths for pair in pairwise(path)]
        used.append(set(roads))
        assert len(roads) / len(set(roads)) > 3
    shared = [len(mine & set().union(*(u for u in used if u is not mine))) for mine in used]
    assert sum(shared) / sum(len(mine) for mine in used) > 0.5


def test_a_path_lies_on_the_hills_and_knows_its_limits():
    _, paths = itinerary(town(0), 0, "car", 20)
    path = trace(town(0), paths)
    true_m = town(0).landscape.elevation_m(path.x_m, path.y_m)
    # Height is linear over 20 m: off by millimetres on hills of 700 m and more, except where a
    # corner or a turn back is cut, by up to 10 m on a slope of a few per cent.
    assert np.median(np.abs(path.elevation_m - true_m)) < 0.005
    assert path.elevation_m == pytest.approx(true_m, abs=0.5)
    step_m = np.hypot(np.diff(path.x_m), np.diff(path.y_m))
    assert step_m.max() <= STEP_M + 1e-9  # shorter only where a corner is cut
    assert np.median(step_m) == pytest.approx(STEP_M)
    assert set(np.unique(path.stop_kind)) <= {0, 1, 2}
    assert path.limit_mps.min() >= 30 / 3.6 - 1e-9


def test_motorways_have_no_stops_on_them():
    roads = town(0).roads
    on = [n for n, around in enumerate(roads.neighbours) if roads.largest[n] == MOTORWAY]
    through = [
        [a, node, b]
        for node in on
        for a, road_a in roads.neighbours[node].items()
        for b, road_b in roads.neighbours[node].items()
        if a != b and road_a.kind == road_b.kind == MOTORWAY
    ]
    assert len(through) >= 8
    for nodes in through:
        assert trace(town(0), [nodes]).stop_kind.tolist() == [0]


def test_a_degree_of_latitude_is_its_share_of_the_earth():
    latitude, longitude = degrees(np.array([0.0, 1000.0]), np.array([0.0, 1000.0]))
    assert np.radians(np.diff(latitude)) * EARTH_RADIUS_M == pytest.approx([1000.0])
    east_m = np.radians(np.diff(longitude)) * EARTH_RADIUS_M * np.cos(np.radians(latitude[0]))
    assert east_m == pytest.approx([1000.0])


def test_the_year_is_cold_in_winter_and_warm_in_summer():
    daily_c = daily_mean_c(0)
    assert daily_c[:31].mean() < 3
    assert daily_c[181:212].mean() > 18
    assert daily_c.mean() == pytest.approx(10, abs=2)


def test_trips_follow_the_calendar():
    day, hour = trip_days("car", 0, 40)
    turns = (np.diff(day) < 0).sum()
    assert turns <= 1  # at most one New Year
    assert ((hour >= 6.5) & (hour <= 21.5)).all()
