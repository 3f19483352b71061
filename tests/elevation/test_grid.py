import numpy as np
import pytest

from fedwatt.elevation.elevation_map import ElevationMap, empty_map
from fedwatt.elevation.grid import Area, Grid, distance_m
from fedwatt.errors import SettingError

GRID = Grid(cell_m=80.0)


def positions(count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    latitude = np.degrees(np.arcsin(rng.uniform(-1, 1, count)))
    return latitude, rng.uniform(-180, 180, count)


def test_the_four_nodes_are_around_the_position():
    latitude, longitude = positions()
    keys, weights = GRID.corners(latitude, longitude)
    assert weights.sum(axis=1) == pytest.approx(1, abs=1e-12)
    assert (weights >= 0).all()
    lat, lon = GRID.positions(keys.ravel())
    away = distance_m(np.repeat(latitude, 4), np.repeat(longitude, 4), lat, lon)
    # The diagonal of a cell is 113 m; rounding a row's nodes to a whole number stretches it little.
    assert away.max() < 120


def test_a_plane_is_read_exactly_along_rows_and_nearly_between_them():
    latitude = np.full(5, 42.0)
    longitude = np.linspace(-83.001, -83.0, 5)
    keys, weights = GRID.corners(latitude, longitude)
    lat, lon = (part.reshape(keys.shape) for part in GRID.positions(keys.ravel()))
    assert (weights * lat).sum(axis=1) == pytest.approx(latitude, abs=1e-12)
    assert (weights * lon).sum(axis=1) == pytest.approx(longitude, abs=1e-12)


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ((10.0, 179.9999999), (10.0, -179.9999999)),  # the date line
        ((89.9999999, 10.0), (89.9999999, -170.0)),  # straight over the north pole
        ((-89.9999999, 10.0), (-89.9999999, -170.0)),
        ((42.0, -1e-9), (42.0, 1e-9)),  # Greenwich, where columns are counted from
    ],
)
def test_readings_are_continuous_everywhere(first, other):
    keys = np.unique(
        np.concatenate([GRID.corners(*np.array([[a], [b]]))[0].ravel() for a, b in (first, other)])
    )
    rng = np.random.default_rng(1)
    nodes = len(keys)
    zero = np.zeros(nodes, dtype=np.int64)
    field = ElevationMap(GRID, keys, rng.normal(size=nodes), zero, np.ones(nodes), zero)
    here, _ = field.read(*np.array([[first[0]], [first[1]]]))
    present, _ = field.read(*np.array([[other[0]], [other[1]]]))
    # The places are about 2 cm apart, nodes 80 m, values of order 1.
    assert here == pytest.approx(present, abs=2e-3)


def test_a_key_belongs_to_one_place_on_earth():
    latitude, longitude = positions()
    keys, _ = GRID.corners(latitude, longitude)
    lat, lon = GRID.positions(np.unique(keys))
    # A hair north-east of a node, the node itself is the first of the four corners.
    again, weights = GRID.corners(lat + 1e-9, lon + 1e-9)
    nearest = np.take_along_axis(again, weights.argmax(axis=1)[:, None], axis=1)[:, 0]
    assert (nearest == np.unique(keys)).all()


def test_unknown_ground_and_missing_positions_read_as_nan():
    elevation, region = empty_map(GRID).read(np.array([42.0, np.nan]), np.array([1.0, 2.0]))
    assert np.isnan(elevation).all()
    assert (region == -1).all()


def test_an_area_holds_all_corners_of_its_positions_across_the_date_line():
    area = Area(south_deg=-1.0, north_deg=-0.98, west_deg=179.99, east_deg=-179.99)
    nodes = area.nodes(GRID)
    assert (np.diff(nodes) > 0).all()
    corners, _ = GRID.corners(np.full(3, -0.99), np.array([179.995, 180.0, -179.995]))
    assert np.isin(corners, nodes).all()


def test_a_cell_size_outside_its_range_is_refused():
    with pytest.raises(SettingError, match="cell_m must be between 1 m and 100 km"):
        Grid(cell_m=0.0)
