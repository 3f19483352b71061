"""Elevation of undriven ground beside a vehicle's map.

Trips leave the ground that the map knows, and a road that is taken for level there costs more than
any other error of a window. Nodes up to `REACH` cells beside the map get the elevation that the
map's prior makes most likely: grades between neighbours are independent with mean 0, so with the
map's own nodes fixed the others minimise

    Σ (z_a - z_b)²   over neighbouring nodes a and b

(harmonic interpolation: Zhu, Ghahramani and Lafferty, ICML 2003). Regions of a map have no common
zero, so each is continued by itself. A vehicle interpolates for itself; nothing of it is uploaded.

Worst case: a wrong climb on ground that nobody has driven, where the alternative is no climb at
all. Interpolated elevations stay within the range of their map, and `climb.rise_m` accepts no grade
above 20 %.
"""

from dataclasses import replace
from typing import Final

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from fedwatt.elevation.elevation_map import Field, find
from fedwatt.elevation.solve import neighbour_ties
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray

REACH: Final = 4
"""Cells beside the map that are interpolated: 320 m with the default grid."""
SLACK: Final = 1e-9
TOLERANCE: Final = 1e-6


def with_undriven_ground(field: Field, reach: int = REACH) -> Field:
    """Return the map with interpolated nodes beside it, which no vehicle has passed."""
    if not field.nodes or not reach:
        return field
    keys, region = _surroundings(field, reach)
    place, driven = find(field.keys, keys)
    elevation_m = np.where(driven, field.elevation_m[place], 0.0)
    undriven = np.flatnonzero(~driven)
    elevation_m[undriven] = _interpolated(field, keys, region, elevation_m, driven)
    return replace(
        field,
        keys=keys,
        elevation_m=elevation_m,
        region=region,
        passes=np.where(driven, field.passes[place], 0.0),
        vehicles=np.where(driven, field.vehicles[place], 0),
    )


def _surroundings(field: Field, reach: int) -> tuple[IntArray, IntArray]:
    """Return the keys of all nodes within `reach` steps of the map, and the region of each."""
    grid = field.grid
    keys = frontier = field.keys
    region = frontier_region = field.region
    for _ in range(reach):
        beside = np.concatenate(grid.neighbours(frontier))
        candidates, first = np.unique(beside, return_index=True)
        fresh = ~find(keys, candidates)[1]
        frontier = candidates[fresh]
        frontier_region = np.tile(frontier_region, 4)[first][fresh]
        order = np.argsort(np.concatenate([keys, frontier]))
        keys = np.concatenate([keys, frontier])[order]
        region = np.concatenate([region, frontier_region])[order]
    return keys, region


def _interpolated(
    field: Field, keys: IntArray, region: IntArray, elevation_m: FloatArray, driven: BoolArray
) -> FloatArray:
    """Return the elevations of the nodes that are not `driven`, in the order of their keys."""
    ties = neighbour_ties(field.grid, keys).tocoo()
    lowest = np.full(ties.shape[0], region.max() + 1)
    highest = np.full(ties.shape[0], -1)
    np.minimum.at(lowest, ties.row, region[ties.col])
    np.maximum.at(highest, ties.row, region[ties.col])
    within_region = ties.tocsr()[np.flatnonzero(lowest == highest)]
    precision = (within_region.T @ within_region).tocsr()
    unknown = np.flatnonzero(~driven)
    known = np.flatnonzero(driven)
    matrix = precision[unknown][:, unknown] + SLACK * sparse.identity(len(unknown), format="csr")
    right = -(precision[unknown][:, known] @ elevation_m[known])
    solution, _ = linalg.cg(matrix, right, rtol=TOLERANCE)
    bounds = field.elevation_m.min(), field.elevation_m.max()
    return np.asarray(np.clip(solution, *bounds), dtype=np.float64)
