"""A vehicle's contribution: sums over nodes, the normal equations of its residuals.

Each segment says slope · (weights · elevations) = residual, up to noise. Written as rows A z = y,
weighted by 1 / noise², the fleet's least-squares problem is Σ AᵀA and Σ Aᵀy over all vehicles: the
sums below add, and one exchange gives the server the very problem of the pooled data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedwatt.elevation.elevation_map import find
from fedwatt.elevation.power import Residual
from fedwatt.elevation.survey import Survey
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray

CHUNK = 65_536  # segments turned into sums at a time; bounds memory for any length of driving


@dataclass(frozen=True, eq=False)
class Contribution:
    """The message of one vehicle, or the sum of many. Nothing else leaves a vehicle.

    keys       int64 [nodes], ascending
    matrix     upper triangle of AᵀA: `row`, `column` int32 and `value` float64, each [pairs]
    right      float64 [nodes], Aᵀy
    passes     float64 [nodes], segments that touch a node
    vehicles   int64 [nodes], vehicles that contributed: 1 in a vehicle's own message
    """

    keys: IntArray
    row: NDArray[np.int32]
    column: NDArray[np.int32]
    value: FloatArray
    right: FloatArray
    passes: FloatArray
    vehicles: IntArray

    @classmethod
    def over(
        cls, keys: IntArray, upper: Any, right: FloatArray, passes: FloatArray, vehicles: IntArray
    ) -> "Contribution":
        """Return sums over `keys` with the upper triangle of AᵀA as a sparse matrix [nodes,
        nodes].
        """
        pairs = upper.tocoo()
        row, column = (at.astype(np.int32, copy=False) for at in (pairs.row, pairs.col))
        return cls(keys, row, column, pairs.data, right, passes, vehicles)

    @cached_property
    def matrix(self) -> sparse.csr_matrix:
        """AᵀA, symmetric, [nodes, nodes]."""
        nodes = len(self.keys)
        upper = sparse.csr_matrix((self.value, (self.row, self.column)), shape=(nodes, nodes))
        return (upper + sparse.triu(upper, 1).T).tocsr()


def touched_nodes(survey: Survey, within: IntArray | None = None) -> IntArray:
    """Nodes, ascending, of the vehicle's segments (wholly `within` a set of nodes, if given)."""
    used = usable_segments(survey, within)
    return np.unique(survey.keys[used][survey.weights[used] != 0])


def usable_segments(survey: Survey, within: IntArray | None = None) -> BoolArray:
    """Segments with both ends placed and, if given, all nodes `within` an ascending set."""
    used = survey.placed.copy()
    if within is not None:
        _, inside = find(within, survey.keys)
        used &= (inside | (survey.weights == 0)).all(axis=1)
    return used


def contribution(
    survey: Survey, own: Residual, within: IntArray | None = None, excluding: IntArray | None = None
) -> Contribution:
    """Return sums over the segments that lie wholly `within` a set of nodes (None: anywhere).

    With `excluding`, segments wholly inside *that* set are left out: what is already shared.
    """
    used = usable_segments(survey, within)
    if excluding is not None:
        used &= ~usable_segments(survey, excluding)
    segments = np.flatnonzero(used)
    keys = np.unique(survey.keys[segments][survey.weights[segments] != 0])
    nodes = len(keys)
    upper = sparse.csr_matrix((nodes, nodes))
    right = np.zeros(nodes)
    passes = np.zeros(nodes)
    for part in np.array_split(segments, max(len(segments) // CHUNK, 1)):
        if not len(part):
            continue
        index, _ = find(keys, survey.keys[part])
        weights = survey.weights[part] * (own.slope_wh_per_m[part] / own.noise_wh)[:, None]
        rows = np.repeat(np.arange(len(part)), index.shape[1])
        design = sparse.csr_matrix((weights.ravel(), (rows, index.ravel())), (len(part), nodes))
        design.sum_duplicates()
        design.eliminate_zeros()
        upper = upper + sparse.triu(design.T @ design)
        right += design.T @ (own.residual_wh[part] / own.noise_wh)
        passes += np.bincount(design.indices, minlength=nodes)
    return Contribution.over(keys, upper, right, passes, np.ones(nodes, dtype=np.int64))


def add(contributions: Sequence[Contribution], forget: float = 1.0) -> Contribution:
    """Return the sum; with `forget` below 1 the first, what was known before, counts that much
    less.
    """
    keys = _union([one.keys for one in contributions])
    nodes = len(keys)
    right = np.zeros(nodes)
    passes = np.zeros(nodes)
    vehicles = np.zeros(nodes, dtype=np.int64)
    first = sparse.csr_matrix((nodes, nodes))
    pairs = sum(len(one.value) for one in contributions[1:])
    row = np.empty(pairs, dtype=np.int32)
    column = np.empty(pairs, dtype=np.int32)
    value = np.empty(pairs)
    filled = 0
    for number, one in enumerate(contributions):
        weight = forget if number == 0 else 1.0
        place = find(keys, one.keys)[0].astype(np.int32)
        right[place] += weight * one.right
        passes[place] += weight * one.passes
        vehicles[place] += one.vehicles
        if number == 0:
            # It may be the sum of a whole fleet: in order already, it is not sorted once more.
            entries = (weight * one.value, (place[one.row], place[one.column]))
            first = sparse.csr_matrix(entries, (nodes, nodes))
            continue
        part = slice(filled, filled + len(one.value))
        row[part] = place[one.row]
        column[part] = place[one.column]
        value[part] = one.value
        filled = part.stop
    others = sparse.csr_matrix((value, (row, column)), (nodes, nodes))
    return Contribution.over(keys, first + others, right, passes, vehicles)


def _union(ascending: Sequence[IntArray]) -> IntArray:
    """All keys, ascending, each once. Sorting beats numpy's hashing of many repeated keys."""
    together = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *ascending]))
    return together[np.diff(together, prepend=-1) > 0]


NOTHING = Contribution(*(np.zeros(0, kind) for kind in ("i8", "i4", "i4", "f8", "f8", "f8", "i8")))
"""The sum of no messages."""
