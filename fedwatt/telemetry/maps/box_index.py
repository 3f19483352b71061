"""Find what lies near many positions at once: boxes sorted into the cells of a grid."""

from dataclasses import dataclass

import numpy as np

from fedwatt.telemetry.trip import FloatArray, IntArray

CELL_DEG = 0.001
# More than the columns around the earth, so that a row and a column make one number.
COLUMNS = 1 << 20


@dataclass(frozen=True, eq=False)
class BoxIndex:
    """`items[starts[i]:starts[i + 1]]` are the boxes that touch the cell `cells[i]`."""

    cells: IntArray
    starts: IntArray
    items: IntArray

    @staticmethod
    def of(low_deg: FloatArray, high_deg: FloatArray) -> "BoxIndex":
        """Return a grid of boxes given by their south-west and north-east corners. Both [items, 2].

        >>> low = np.zeros((2, 2))
        >>> boxes = BoxIndex.of(low, low + [[0.0, 0.0], [0.0, 0.001]])
        >>> boxes.pairs(np.array([[0.0, 0.0015], [0.0, 0.0005], [1.0, 1.0]]))
        (array([0, 1, 1]), array([1, 0, 1]))
        """
        first = _cell(low_deg)
        last = _cell(high_deg)
        rows, columns = (last - first + 1).T
        item, place = _expanded(rows * columns)
        row = first[item, 0] + place // columns[item]
        column = first[item, 1] + place % columns[item]
        key = row * COLUMNS + column
        # Stable, so that a cell lists its boxes in their order whatever else the grid holds.
        order = np.argsort(key, kind="stable")
        cells, starts = np.unique(key[order], return_index=True)
        return BoxIndex(cells, np.append(starts, len(key)), item[order])

    def pairs(self, place_deg: FloatArray) -> tuple[IntArray, IntArray]:
        """Every (position, box) that share a cell, in order of positions. Both [pairs]."""
        if not len(self.cells):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        row, column = _cell(place_deg).T
        key = row * COLUMNS + column
        places = np.minimum(np.searchsorted(self.cells, key), len(self.cells) - 1)
        hit = self.cells[places] == key
        counts = np.where(hit, self.starts[places + 1] - self.starts[places], 0)
        position, place = _expanded(counts)
        return position, self.items[self.starts[places[position]] + place]


def _cell(place_deg: FloatArray) -> IntArray:
    return np.floor(place_deg / CELL_DEG).astype(np.int64)


def _expanded(counts: IntArray) -> tuple[IntArray, IntArray]:
    """For each of `counts[i]` entries: i, and its place 0, 1, ... among them.

    >>> _expanded(np.array([2, 0, 1]))
    (array([0, 0, 2]), array([0, 1, 0]))
    """
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
