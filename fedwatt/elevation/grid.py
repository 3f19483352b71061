"""A metric grid over the whole earth, each node with one absolute key, and sets of its nodes.

Rows are circles of latitude, `cell_m` apart from pole to pole. Each row has its own number of
equally spaced nodes, again about `cell_m` apart, so cells are square anywhere: the row nearest a
pole has a handful of nodes, and the pole itself is one. A value between nodes is linear along the
two rows around it and linear between these. That is continuous everywhere, the date line and the
poles included, and needs no map projection and no zones: towns far apart share one numbering.

Sets of nodes that vehicles agree on before an exchange make message sizes that reveal nothing: all
nodes of the operator's service area (`Area`), and of the published nodes all pairs that one segment
can touch (`agreed_pairs`). They are the same for every vehicle, whatever it drove.
"""

from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import check
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray

EARTH_RADIUS_M = 6_371_000.0
ROW_SHIFT = 32
COLUMN_MASK = (1 << ROW_SHIFT) - 1


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Nodes `cell_m` apart; 80 m follows slopes and is still driven often enough to be learned."""

    cell_m: float = 80.0

    def __post_init__(self) -> None:
        fits = isfinite(self.cell_m) and 1 <= self.cell_m <= 100_000
        check(self, "cell_m", fits, "between 1 m and 100 km")

    @property
    def rows(self) -> int:
        """Cells from the south pole (row 0) to the north pole (row `rows`)."""
        return round(np.pi * EARTH_RADIUS_M / self.cell_m)

    def columns(self, row: IntArray) -> IntArray:
        """Return the number of nodes on each row [...], at least one."""
        around_m = 2 * np.pi * EARTH_RADIUS_M * np.sin(np.pi * row / self.rows)
        return np.maximum(np.round(around_m / self.cell_m), 1).astype(np.int64)

    def corners(
        self, latitude_deg: FloatArray, longitude_deg: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Return the keys and weights [seconds, 4] of the nodes around finite positions [seconds].

        >>> keys, weights = Grid().corners(np.array([42.3]), np.array([179.9999]))
        >>> keys.shape, float(weights.sum().round(12))
        ((1, 4), 1.0)
        """
        height = (np.clip(latitude_deg, -90, 90) + 90) / 180 * self.rows
        below = np.minimum(height.astype(np.int64), self.rows - 1)
        share = height - below
        keys = []
        weights = []
        for row, row_share in ((below, 1 - share), (below + 1, share)):
            (west, west_share), (east, east_share) = self._on_row(row, longitude_deg)
            keys += [west, east]
            weights += [row_share * west_share, row_share * east_share]
        return np.stack(keys, axis=-1), np.stack(weights, axis=-1)

    def _on_row(
        self, row: IntArray, longitude_deg: FloatArray
    ) -> tuple[tuple[IntArray, FloatArray], tuple[IntArray, FloatArray]]:
        """Return the keys of the nodes west and east of a longitude on a row, and their weights."""
        count = self.columns(row)
        turn = np.mod(longitude_deg, 360.0) / 360.0 * count
        west = turn.astype(np.int64)
        share = turn - west
        # Rounding may put a longitude just west of 0° on the last node of the row: wrap it.
        west = np.mod(west, count)
        first = row << ROW_SHIFT
        return (first | west, 1 - share), (first | np.mod(west + 1, count), share)

    def positions(self, keys: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return latitude and longitude of nodes, degrees [nodes], longitude from -180 to 180."""
        row = keys >> ROW_SHIFT
        column = keys & COLUMN_MASK
        longitude = column / self.columns(row) * 360.0
        return row / self.rows * 180.0 - 90.0, np.mod(longitude + 180.0, 360.0) - 180.0

    def beside(self, keys: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the nodes one cell east and one cell north of each node, and the distances.

        Returns the key to the east [nodes], and keys and weights [nodes, 2] whose weighted mean is
        the value due north. North of a pole there is nothing: the node itself is returned.
        """
        row = keys >> ROW_SHIFT
        column = keys & COLUMN_MASK
        east = (row << ROW_SHIFT) | np.mod(column + 1, self.columns(row))
        _, longitude_deg = self.positions(keys)
        above = np.minimum(row + 1, self.rows)
        (west, west_share), (other, other_share) = self._on_row(above, longitude_deg)
        return east, np.stack([west, other], axis=-1), np.stack([west_share, other_share], axis=-1)

    def neighbours(self, keys: IntArray) -> list[IntArray]:
        """Return the nearest nodes one cell north, south, east and west of each node, 4 · [nodes].

        >>> north, south, east, west = Grid().neighbours(np.array([5 << ROW_SHIFT]))
        >>> north >> ROW_SHIFT, south >> ROW_SHIFT, east & COLUMN_MASK, west & COLUMN_MASK
        (array([6]), array([4]), array([1]), array([30]))
        """
        latitude_deg, longitude_deg = self.positions(keys)
        north = 180.0 / self.rows
        east = 360.0 / self.columns(keys >> ROW_SHIFT)
        beside = []
        for rows, columns in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            nodes, weights = self.corners(
                latitude_deg + rows * north, longitude_deg + columns * east
            )
            beside.append(np.take_along_axis(nodes, weights.argmax(axis=1)[:, None], axis=1)[:, 0])
        return beside

    def blocks(self, keys: IntArray, cells: int) -> IntArray:
        """Return the key of each node's square of about `cells` × `cells` nodes, [nodes]."""
        coarse = Grid(cell_m=self.cell_m * cells)
        latitude_deg, longitude_deg = self.positions(keys)
        nodes, weights = coarse.corners(latitude_deg, longitude_deg)
        return np.take_along_axis(nodes, weights.argmax(axis=1)[:, None], axis=1)[:, 0]


def distance_m(
    latitude_deg: FloatArray,
    longitude_deg: FloatArray,
    other_lat: FloatArray,
    other_lon: FloatArray,
) -> FloatArray:
    """Return the metres between positions [...] on the sphere, also across the date line and at the
    poles.

    >>> one, other = (np.array([0.0, 179.9995]), np.array([0.0, -179.9995]))
    >>> distance_m(np.zeros(2), one, np.zeros(2), other).round(1)
    array([  0. , 111.2])
    """
    lat1 = np.radians(latitude_deg)
    lat2 = np.radians(other_lat)
    half_lat = np.sin((lat2 - lat1) / 2) ** 2
    half_lon = np.sin(np.radians(other_lon - longitude_deg) / 2) ** 2
    chord = half_lat + np.cos(lat1) * np.cos(lat2) * half_lon
    metres: FloatArray = 2 * EARTH_RADIUS_M * np.arcsin(np.sqrt(np.minimum(chord, 1.0)))
    return metres


def scattered(values: NDArray[Any], at: IntArray, places: int) -> NDArray[Any]:
    """Return an array [places] with `values` at the indices `at`, and 0 elsewhere.

    >>> scattered(np.array([7, 9]), np.array([2, 0]), 4)
    array([9, 0, 7, 0])
    """
    wide = np.zeros(places, dtype=values.dtype)
    wide[at] = values
    return wide


def marked(keys: IntArray, among: IntArray) -> FloatArray:
    """Return 1 where a value of `among`, ascending, is in `keys`, and 0 elsewhere.

    >>> marked(np.array([5, 4]), np.array([3, 5]))
    array([0., 1.])
    """
    at, inside = find(among, keys)
    return scattered(np.ones(int(inside.sum())), at[inside], len(among))


def find(ascending: IntArray, keys: IntArray) -> tuple[IntArray, BoolArray]:
    """Return the place of each key in `ascending`, valid for absent ones, and whether it is there.

    >>> find(np.array([3, 5]), np.array([5, 4]))
    (array([1, 1]), array([ True, False]))
    """
    index = np.minimum(np.searchsorted(ascending, keys), max(len(ascending) - 1, 0))
    if not len(ascending):
        return index, np.zeros(index.shape, dtype=bool)
    return index, ascending[index] == keys


Pairs = tuple[IntArray, IntArray]
"""Pairs of nodes by their places in an ascending set, the lower place first, each [pairs]."""
FASTEST_MPS = 40.0
"""Segments driven faster are left out; more pairs would make every vehicle's message longer."""


@dataclass(frozen=True, kw_only=True)
class Area:
    """The service area of the fleet; `west_deg` > `east_deg` crosses the date line."""

    south_deg: float
    north_deg: float
    west_deg: float
    east_deg: float

    def __post_init__(self) -> None:
        check(self, "north_deg", -90 <= self.south_deg < self.north_deg <= 90, "above south_deg")
        for name in ("west_deg", "east_deg"):
            check(self, name, -180 <= getattr(self, name) <= 360, "from -180 to 360 degrees")
        check(self, "east_deg", self.east_deg != self.west_deg, "other than west_deg")

    def size(self, grid: Grid) -> int:
        """Return the number of nodes, without listing them."""
        return int(self._rows(grid)[2].sum())

    def nodes(self, grid: Grid) -> IntArray:
        """Return all nodes of the area, ascending."""
        keys = []
        for row, count, length in zip(*self._rows(grid), strict=True):
            start = int(self.west_deg % 360 / 360 * count)
            columns = start + np.arange(length)
            keys.append((row << ROW_SHIFT) | np.sort(columns % count))
        return np.concatenate(keys).astype(np.int64)

    def _rows(self, grid: Grid) -> tuple[IntArray, IntArray, IntArray]:
        """Return the rows of the area, the nodes of each row around the earth, and those inside."""
        first, last = (
            (latitude + 90) / 180 * grid.rows for latitude in (self.south_deg, self.north_deg)
        )
        rows = np.arange(int(first), min(ceil(last), grid.rows) + 1)
        around = grid.columns(rows)
        apart = self.east_deg - self.west_deg
        width = 1.0 if apart >= 360 else apart % 360 / 360
        return rows, around, np.minimum(np.ceil(width * around).astype(np.int64) + 2, around)


def agreed_pairs(grid: Grid, nodes: IntArray, segment_s: int) -> Pairs:
    """Return all pairs of `nodes` that a segment can touch, the same for every vehicle."""
    reach, sideways = pair_reach(grid, segment_s)
    row = nodes >> ROW_SHIFT
    column = nodes & COLUMN_MASK
    here = column / grid.columns(row)
    # A vehicle's largest arrays: as few of them at a time as can be.
    codes = []
    for up in range(reach + 1):
        above = np.minimum(row + up, grid.rows)
        count = grid.columns(above)
        centre = np.round(here * count).astype(np.int64)
        for aside in range(0 if up == 0 else -sideways, sideways + 1):
            key = (above << ROW_SHIFT) | np.mod(centre + aside, count)
            at, is_node = find(nodes, key)
            start = np.flatnonzero(is_node)
            end = at[is_node]
            codes.append(np.minimum(start, end) * len(nodes) + np.maximum(start, end))
    code = np.concatenate(codes)
    codes.clear()
    code.sort()
    code = code[np.diff(code, prepend=-1) > 0]
    first, second = np.divmod(code, len(nodes))
    return first, second


def pair_reach(grid: Grid, segment_s: int) -> tuple[int, int]:
    """Return how many rows and columns two nodes of a segment may lie apart.

    A row more than was driven, for the corners around each end; two columns more, because rows have
    different numbers of nodes and do not line up.
    """
    rows = ceil(segment_s * FASTEST_MPS / grid.cell_m) + 1
    return rows, rows + 1


def pairs_of_a_node(grid: Grid, segment_s: int) -> int:
    """Return about how many pairs `agreed_pairs` has per node whose neighbours are all published.

    >>> pairs_of_a_node(Grid(cell_m=80.0), 8)
    72
    """
    reach, sideways = pair_reach(grid, segment_s)
    return sideways + 1 + reach * (2 * sideways + 1)
