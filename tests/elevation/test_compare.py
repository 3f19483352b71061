"""A learned map held against ground that is known."""

import numpy as np
import pytest

from fedwatt.elevation.compare import compare_with_reference
from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import learn
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import DataError
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.windows import DataSettings
from tests.elevation.toys import Hills, TownGround, fleet


class Plane:
    """Rises by a metre for each 0.001° north; unknown east of 10.01°."""

    def elevation_m(self, latitude_deg, longitude_deg):
        height = 1000 * (latitude_deg - 45)
        return np.where(longitude_deg < 10.01, height, np.nan)


def test_a_field_half_as_steep_has_slope_a_half():
    grid = Grid(cell_m=80.0)
    latitude, longitude = np.meshgrid(np.arange(45, 45.02, 0.0007), np.arange(10, 10.02, 0.001))
    keys = np.unique(grid.corners(latitude.ravel(), longitude.ravel())[0])
    north, east = grid.positions(keys)
    # Half as steep and anywhere in height; two regions that have no common zero.
    region = (north > 45.01).astype(np.int64)
    elevation = 500 * (north - 45) + 70 * region
    ones = np.ones(len(keys))
    field = ElevationMap(grid, keys, elevation, region, ones, ones.astype(np.int64))
    agreement = compare_with_reference(field, Plane())
    assert agreement.nodes == len(keys)
    assert agreement.covered == pytest.approx((east < 10.01).mean())
    assert (agreement.correlation, agreement.slope) == pytest.approx((1.0, 0.5))
    # Differences are half of the plane's about their means: RMS and median follow from it.
    halves = np.concatenate(
        [500 * (n - n.mean()) for n in (north[(region == r) & (east < 10.01)] for r in (0, 1))]
    )
    assert agreement.rms_m == pytest.approx(np.sqrt(np.mean(halves**2)))
    assert agreement.median_m == pytest.approx(np.median(np.abs(halves)))
    assert [grade.span_m for grade in agreement.grades] == [500, 1000, 2000]
    for grade in agreement.grades[:2]:
        assert grade.pairs > 100
        assert grade.difference == pytest.approx(grade.reference / 2)
    # Each region is 1.1 km long and 0.8 km wide, so no two of its nodes are 2 km apart.
    assert agreement.grades[2].pairs == 0


def test_a_model_of_another_region_is_refused():
    grid = Grid()
    keys = np.unique(Grid().corners(np.array([45.0]), np.array([50.0]))[0])
    field = ElevationMap(grid, keys, np.zeros(4), *(np.zeros(4, dtype=np.int64),) * 3)
    with pytest.raises(DataError, match="covers 0 of 4 nodes"):
        compare_with_reference(field, Plane())


def test_learned_hills_agree_with_the_true_ones_in_toys_and_in_the_synthetic_town():
    open_to_all = ElevationSettings(minimum_vehicles=1, private=False)
    learned = learn(fleet(6), open_to_all, DataSettings(features="speed")).shared
    assert compare_with_reference(learned, Hills()).correlation > 0.95
    town = learn(synthetic_vehicles(6, trips=20), open_to_all, DataSettings()).shared
    agreement = compare_with_reference(town, TownGround())
    assert agreement.covered == 1.0
    assert agreement.correlation > 0.95
    assert agreement.slope == pytest.approx(1.0, abs=0.1)
    assert agreement.grades[0].difference < 0.3 * agreement.grades[0].reference
