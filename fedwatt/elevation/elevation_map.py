"""Elevations at the nodes of a grid, and what a position reads from them.

A field is known up to a constant for each *region*, a connected piece of driven ground: energy
tells how much higher one place is than another, not how high. Differences across regions therefore
mean nothing, and `climb` never takes one.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.elevation.grid import Grid
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray

NEGLIGIBLE_WEIGHT = 1e-9


@dataclass(frozen=True)
class Prior:
    """The prior a map was learned with: segments of so many seconds, slopes of about `grade`."""

    segment_s: int = 8
    grade: float = 0.03


@dataclass(frozen=True, eq=False)
class Field:
    """Elevations of `nodes` nodes, ascending by key.

    `region` numbers the connected pieces; `passes` is how many segments met a node (an estimate
    where shared), `vehicles` how many vehicles contributed to it. `prior` is what the fleet chose.
    A vehicle whose own field is `measured` reads its elevation channel first, and the field where
    that says nothing.
    """

    grid: Grid
    keys: IntArray
    elevation_m: FloatArray
    region: IntArray
    passes: FloatArray
    vehicles: IntArray
    prior: Prior = Prior()
    measured: bool = False

    @property
    def nodes(self) -> int:
        """Number of known nodes."""
        return len(self.keys)

    def only(self, chosen: BoolArray) -> "Field":
        """Return the nodes [nodes] that are chosen."""
        parts = ("keys", "elevation_m", "region", "passes", "vehicles")
        return replace(self, **{name: getattr(self, name)[chosen] for name in parts})

    def read(
        self, latitude_deg: FloatArray, longitude_deg: FloatArray
    ) -> tuple[FloatArray, IntArray]:
        """Elevation [seconds], NaN where it is not known, and the region, -1 there."""
        if not self.nodes:
            return np.full(len(latitude_deg), np.nan), np.full(len(latitude_deg), -1)
        finite = np.isfinite(latitude_deg) & np.isfinite(longitude_deg)
        corners, weights = self.grid.corners(
            np.where(finite, latitude_deg, 0.0), np.where(finite, longitude_deg, 0.0)
        )
        index, known = find(self.keys, corners)
        needed = weights > NEGLIGIBLE_WEIGHT
        regions = self.region[index[np.arange(len(index)), weights.argmax(axis=1)]]
        sure = finite & (known | ~needed).all(axis=1)
        elevation = np.where(needed, weights * self.elevation_m[index], 0.0).sum(axis=1)
        return np.where(sure, elevation, np.nan), np.where(sure, regions, -1)


def bare_field(grid: Grid, keys: IntArray, elevation_m: FloatArray, region: IntArray) -> Field:
    """Return a field that is only read: it does not say who passed its nodes, nor how often."""
    nobody = np.zeros(len(keys))
    return Field(grid, keys, elevation_m, region, nobody, nobody.astype(np.int64))


def empty_field(grid: Grid) -> Field:
    """Return a field that knows nothing."""
    nowhere = np.zeros(0, dtype=np.int64)
    return bare_field(grid, nowhere, np.zeros(0), nowhere)


def spread(values: NDArray[Any], at: IntArray, places: int) -> NDArray[Any]:
    """`values` at their places among so many, 0 elsewhere, [places].

    >>> spread(np.array([7, 9]), np.array([2, 0]), 4)
    array([9, 0, 7, 0])
    """
    wide = np.zeros(places, dtype=values.dtype)
    wide[at] = values
    return wide


def marked(keys: IntArray, among: IntArray) -> FloatArray:
    """1 for each of `among`, ascending, that is one of the `keys`, else 0.

    >>> marked(np.array([5, 4]), np.array([3, 5]))
    array([0., 1.])
    """
    at, inside = find(among, keys)
    return spread(np.ones(int(inside.sum())), at[inside], len(among))


def find(ascending: IntArray, keys: IntArray) -> tuple[IntArray, BoolArray]:
    """Place of each key in `ascending` and whether it is there; places of absent keys are valid.

    >>> find(np.array([3, 5]), np.array([5, 4]))
    (array([1, 1]), array([ True, False]))
    """
    index = np.minimum(np.searchsorted(ascending, keys), max(len(ascending) - 1, 0))
    if not len(ascending):
        return index, np.zeros(index.shape, dtype=bool)
    return index, ascending[index] == keys
