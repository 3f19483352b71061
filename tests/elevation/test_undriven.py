"""Interpolated ground beside a map: values between two roads, regions apart, bounds."""

import numpy as np
import pytest

from fedwatt.elevation.elevation_map import ElevationMap, bare_map
from fedwatt.elevation.grid import Grid, find
from fedwatt.elevation.vehicle_map import REACH, with_undriven_nodes

GRID = Grid()
ROW = 7_000 << 32


def road(rows: int, elevation_m: float, columns: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes of a level road along a circle of latitude, and their elevations."""
    keys = ROW + (rows << 32) + 50 + np.arange(columns)
    return keys, np.full(columns, elevation_m)


def field_of(*roads: tuple[np.ndarray, np.ndarray], regions: tuple[int, ...] = ()) -> ElevationMap:
    """Return the map of some roads, all of region 0 unless their regions are named."""
    keys = np.concatenate([nodes for nodes, _ in roads])
    elevation_m = np.concatenate([values for _, values in roads])
    numbers = regions or (0,) * len(roads)
    region = np.repeat(numbers, [len(nodes) for nodes, _ in roads])
    order = np.argsort(keys)
    return bare_map(GRID, keys[order], elevation_m[order], region[order])


def at(field: ElevationMap, row: int) -> np.ndarray:
    """Return the elevations of a row's middle nodes."""
    keys = ROW + (row << 32) + 58 + np.arange(4)
    place, reference = find(field.keys, keys)
    assert reference.all()
    return field.elevation_m[place]


def test_ground_between_two_roads_lies_between_them():
    # Roads at 0 m and 8 m, four cells apart: 2, 4 and 6 m but for the open ends.
    field = with_undriven_nodes(field_of(road(0, 0.0), road(4, 8.0)))
    for row, expected in ((1, 2.0), (2, 4.0), (3, 6.0)):
        assert at(field, row) == pytest.approx(expected, abs=0.5)


def test_driven_ground_keeps_its_elevation_and_its_vehicles():
    driven = field_of(road(0, 3.0), road(4, 8.0))
    field = with_undriven_nodes(driven)
    place, reference = find(field.keys, driven.keys)
    assert reference.all()
    assert field.elevation_m[place] == pytest.approx(driven.elevation_m)
    assert field.nodes > driven.nodes
    assert field.vehicles.max() == 0  # bare maps count nobody, and interpolated nodes nobody either


def test_regions_are_continued_apart():
    # Between a region at 0 m and one at 500 m, which share no zero, nothing is mixed.
    field = with_undriven_nodes(field_of(road(0, 0.0), road(4, 500.0), regions=(0, 1)))
    assert set(np.unique(field.elevation_m[field.region == 0]).round(1)) == {0.0}
    assert set(np.unique(field.elevation_m[field.region == 1]).round(1)) == {500.0}


def test_no_elevation_leaves_the_range_of_the_map():
    rng = np.random.default_rng(3)
    keys, _ = road(0, 0.0)
    driven = field_of((keys, rng.normal(0, 100, len(keys))))
    field = with_undriven_nodes(driven)
    assert field.elevation_m.min() >= driven.elevation_m.min()
    assert field.elevation_m.max() <= driven.elevation_m.max()


def test_interpolation_reaches_a_few_cells_and_not_further():
    field = with_undriven_nodes(field_of(road(0, 1.0)))
    rows = (field.keys >> 32) - (ROW >> 32)
    assert (rows.min(), rows.max()) == (-REACH, REACH)


def test_an_empty_map_stays_empty():
    nowhere = np.zeros(0, dtype=np.int64)
    assert with_undriven_nodes(bare_map(GRID, nowhere, np.zeros(0), nowhere)).nodes == 0
