"""Heights on a regular grid of posts, in memory or in a file, read bilinearly."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedwatt.telemetry.trip import FloatArray, IntArray


class Heights(Protocol):
    """An array of heights [rows, columns], or a file that is read like one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    def __getitem__(self, place: tuple[IntArray, IntArray]) -> NDArray[Any]:
        """Heights at these rows and columns, in the shape of `place`."""


@dataclass(frozen=True, eq=False)
class Tile:
    """Heights on a regular grid [rows, columns], first row north, first column west.

    `north_deg` and `west_deg` are the position of the first post; steps are positive degrees.
    Heights may be any kind of number; those equal to `void` are unknown. A position is known if
    the corners that are known have more than `least_weight` of 1.
    """

    heights_m: Heights
    north_deg: float
    west_deg: float
    latitude_step_deg: float
    longitude_step_deg: float
    void: float = np.nan
    least_weight: float = 1e-9

    def elevation_m(self, latitude_deg: FloatArray, longitude_deg: FloatArray) -> FloatArray:
        """Bilinear height; a void corner leaves the others their weight. NaN outside. [seconds]."""
        row = (self.north_deg - latitude_deg) / self.latitude_step_deg
        column = (longitude_deg - self.west_deg) / self.longitude_step_deg
        rows, columns = self.heights_m.shape
        # A position on the last post is inside, whatever the last bit of the division says.
        slack = 1e-6
        inside = (row >= -slack) & (row <= rows - 1 + slack)
        inside &= (column >= -slack) & (column <= columns - 1 + slack)
        elevations = np.full(len(row), np.nan)
        if not inside.any():
            return elevations
        row, column = np.clip(row[inside], 0, rows - 1), np.clip(column[inside], 0, columns - 1)
        top = np.minimum(row.astype(int), rows - 2)
        left = np.minimum(column.astype(int), columns - 2)
        down = row - top
        right = column - left
        around = [top, top, top + 1, top + 1], [left, left + 1, left, left + 1]
        corners = np.asarray(self.heights_m[np.stack(around[0]), np.stack(around[1])], float)
        corners[corners == self.void] = np.nan
        up = 1 - down
        aside = 1 - right
        shares = np.stack([up * aside, up * right, down * aside, down * right])
        shares[~np.isfinite(corners)] = 0.0
        height = (shares * np.nan_to_num(corners)).sum(axis=0)
        weight = shares.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            elevations[inside] = np.where(weight > self.least_weight, height / weight, np.nan)
        return elevations
