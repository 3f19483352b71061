"""The relief of an elevation map."""

import numpy as np
import pytest

from fedwatt.elevation.elevation_map import ElevationMap, empty_map
from fedwatt.elevation.grid import Grid
from fedwatt.errors import DataError
from fedwatt.report.figures.elevation import relief_of

GRID = Grid()


def square(longitude: float = 8.0) -> ElevationMap:
    """20 × 20 nodes that rise a metre a row; the first two rows were driven by two vehicles."""
    rows, columns = np.meshgrid(np.arange(20), np.arange(20), indexing="ij")
    places = 45 + rows.ravel() * 180 / GRID.rows, longitude + columns.ravel() * 0.00102
    keys, weights = GRID.corners(places[0] + 1e-7, (places[1] + 180) % 360 - 180)
    nearest = np.take_along_axis(keys, weights.argmax(axis=1)[:, None], axis=1)[:, 0]
    keys, first = np.unique(nearest, return_index=True)
    row = rows.ravel()[first]
    zero = np.zeros(len(keys), dtype=np.int64)
    return ElevationMap(GRID, keys, row - row.mean(), zero, 1.0 + row, np.where(row < 2, 2, 5))


@pytest.mark.parametrize("longitude", [8.0, 179.99])
def test_a_map_is_as_large_as_the_ground_also_across_the_date_line(longitude):
    relief = relief_of(square(longitude))
    # 19 cells of 80 m and four more on each side.
    assert np.ptp(relief.extent[2:]) == pytest.approx(27 * 0.08, abs=0.05)
    assert np.ptp(relief.extent[:2]) == pytest.approx(27 * 0.08, abs=0.12)
    assert relief.step_m == 2
    inside = relief.height_m[np.isfinite(relief.height_m)]
    assert inside.max() - inside.min() == pytest.approx(19, abs=0.5)


def test_too_few_nodes_are_no_map():
    with pytest.raises(DataError, match="too few to draw"):
        relief_of(empty_map(GRID))
