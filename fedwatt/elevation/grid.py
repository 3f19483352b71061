"""A metric grid over the whole earth, each node with one absolute key.

Rows are circles of latitude, `cell_m` apart from pole to pole. Each row has its own number of
equally spaced nodes, again about `cell_m` apart, so cells are square anywhere: the row nearest a
pole has a handful of nodes, and the pole itself is one. A value between nodes is linear along the
two rows around it and linear between these. That is continuous everywhere, the date line and the
poles included, and needs no map projection and no zones: towns far apart share one numbering.
"""

from dataclasses import dataclass
from math import isfinite

import numpy as np

from fedwatt.errors import check
from fedwatt.telemetry.trip import FloatArray, IntArray

EARTH_RADIUS_M = 6_371_000.0
CORNERS = 4
ROW_SHIFT = 32
COLUMN_MASK = (1 << ROW_SHIFT) - 1


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Nodes `cell_m` apart; 80 m follows hills and is still driven often enough to be learned."""

    cell_m: float = 80.0

    def __post_init__(self) -> None:
        fits = isfinite(self.cell_m) and 1 <= self.cell_m <= 100_000
        check(self, "cell_m", fits, "between 1 m and 100 km")

    @property
    def rows(self) -> int:
        """Cells from the south pole (row 0) to the north pole (row `rows`)."""
        return round(np.pi * EARTH_RADIUS_M / self.cell_m)

    def columns(self, row: IntArray) -> IntArray:
        """Nodes on each row [...]; at least one."""
        around_m = 2 * np.pi * EARTH_RADIUS_M * np.sin(np.pi * row / self.rows)
        return np.maximum(np.round(around_m / self.cell_m), 1).astype(np.int64)

    def corners(
        self, latitude_deg: FloatArray, longitude_deg: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Keys and weights [seconds, 4] of the nodes around finite positions [seconds].

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
        """Keys of the nodes west and east of a longitude on a row, and their shares."""
        count = self.columns(row)
        turn = np.mod(longitude_deg, 360.0) / 360.0 * count
        west = turn.astype(np.int64)
        share = turn - west
        # Rounding may put a longitude just west of 0° on the last node of the row: wrap it.
        west = np.mod(west, count)
        first = row << ROW_SHIFT
        return (first | west, 1 - share), (first | np.mod(west + 1, count), share)

    def positions(self, keys: IntArray) -> tuple[FloatArray, FloatArray]:
        """Latitude and longitude of nodes, degrees [nodes], longitude from -180 to 180."""
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
        (one, one_share), (two, two_share) = self._on_row(above, longitude_deg)
        return east, np.stack([one, two], axis=-1), np.stack([one_share, two_share], axis=-1)

    def neighbours(self, keys: IntArray) -> list[IntArray]:
        """Return the nearest nodes one cell north, south, east and west of each node, 4 · [nodes].

        >>> north, south, east, west = Grid().neighbours(np.array([5 << ROW_SHIFT]))
        >>> north >> ROW_SHIFT, south >> ROW_SHIFT, east & COLUMN_MASK, west & COLUMN_MASK
        (array([6]), array([4]), array([1]), array([30]))
        """
        latitude_deg, longitude_deg = self.positions(keys)
        north = 180.0 / self.rows
        east = 360.0 / self.columns(keys >> ROW_SHIFT)
        found = []
        for rows, columns in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            nodes, weights = self.corners(
                latitude_deg + rows * north, longitude_deg + columns * east
            )
            found.append(np.take_along_axis(nodes, weights.argmax(axis=1)[:, None], axis=1)[:, 0])
        return found

    def blocks(self, keys: IntArray, cells: int) -> IntArray:
        """Key of the square of about `cells` × `cells` nodes that each node is in, [nodes]."""
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
    """Metres between positions [...] on the sphere; right across the date line and at the poles.

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
