"""Node sets that vehicles agree on before an exchange, so that message sizes reveal nothing.

All nodes of the operator's service area, and of the published nodes all pairs that one segment can
touch: the same for every vehicle, whatever it drove.
"""

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from fedwatt.elevation.elevation_map import find
from fedwatt.elevation.grid import COLUMN_MASK, ROW_SHIFT, Grid
from fedwatt.elevation.survey import Survey
from fedwatt.errors import check
from fedwatt.telemetry.trip import IntArray

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
        """All nodes of the area, ascending."""
        keys = []
        for row, count, length in zip(*self._rows(grid), strict=True):
            start = int(self.west_deg % 360 / 360 * count)
            columns = start + np.arange(length)
            keys.append((row << ROW_SHIFT) | np.sort(columns % count))
        return np.concatenate(keys).astype(np.int64)

    def _rows(self, grid: Grid) -> tuple[IntArray, IntArray, IntArray]:
        """Rows that it covers, the nodes on each around the earth, and those in it."""
        first, last = (
            (latitude + 90) / 180 * grid.rows for latitude in (self.south_deg, self.north_deg)
        )
        rows = np.arange(int(first), min(ceil(last), grid.rows) + 1)
        around = grid.columns(rows)
        apart = self.east_deg - self.west_deg
        width = 1.0 if apart >= 360 else apart % 360 / 360
        return rows, around, np.minimum(np.ceil(width * around).astype(np.int64) + 2, around)


def agreed_pairs(grid: Grid, nodes: IntArray, segment_s: int) -> Pairs:
    """All pairs of `nodes` that a segment can touch; the same for every vehicle."""
    reach, sideways = _reach(grid, segment_s)
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
            at, known = find(nodes, key)
            one = np.flatnonzero(known)
            other = at[known]
            codes.append(np.minimum(one, other) * len(nodes) + np.maximum(one, other))
    code = np.concatenate(codes)
    codes.clear()
    code.sort()
    code = code[np.diff(code, prepend=-1) > 0]
    first, second = np.divmod(code, len(nodes))
    return first, second


def _reach(grid: Grid, segment_s: int) -> tuple[int, int]:
    """Rows and columns that two nodes of a segment may lie apart.

    A row more than was driven, for the corners around each end; two columns more, because rows have
    different numbers of nodes and do not line up.
    """
    rows = ceil(segment_s * FASTEST_MPS / grid.cell_m) + 1
    return rows, rows + 1


def pairs_of_a_node(grid: Grid, segment_s: int) -> int:
    """About how many pairs `agreed_pairs` has for each node, where all around it are agreed on.

    >>> pairs_of_a_node(Grid(cell_m=80.0), 8)
    72
    """
    reach, sideways = _reach(grid, segment_s)
    return sideways + 1 + reach * (2 * sideways + 1)


def agreed_segments(survey: Survey, grid: Grid, segment_s: int) -> Survey:
    """Return the survey without segments of which two nodes make no pair of `agreed_pairs`.

    A vehicle decides this by itself, before anything is published: what it does not sum it must not
    count for either, or a node would end up with fewer vehicles than were counted.
    """
    reach, sideways = _reach(grid, segment_s)
    needed = survey.weights != 0
    row = survey.keys >> ROW_SHIFT
    column = survey.keys & COLUMN_MASK
    count = grid.columns(row)
    agreed = survey.placed.copy()
    corners = survey.keys.shape[1]
    for one in range(corners):
        for other in range(corners):
            up = row[:, other] - row[:, one]
            centre = np.round(column[:, one] / count[:, one] * count[:, other]).astype(np.int64)
            aside = np.mod(column[:, other] - centre, count[:, other])
            aside = np.minimum(aside, count[:, other] - aside)
            # A pair is looked at from its lower node, as in `agreed_pairs`.
            apart = (up > reach) | ((up >= 0) & (aside > sideways))
            agreed &= ~(apart & needed[:, one] & needed[:, other])
    return replace(survey, placed=agreed)
