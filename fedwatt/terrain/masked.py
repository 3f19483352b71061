"""The exchange in which the server sees sums over vehicles and nothing of any one of them.

Every vehicle of an exchange shares a secret with every other one. Each pair derives from its secret
a stream of random words that one adds and the other subtracts, so a message by itself is uniformly
random, and only the sum of all messages means something (Bonawitz et al., CCS 2017, without its
recovery: an exchange in which a message is missing is begun anew without that vehicle).

Messages have a fixed length that says nothing either. First all nodes of the operator's service
area are counted, again and again until the set of nodes that k vehicles drive stands still; then
sums are exchanged over those nodes, and over pairs of them that one segment can touch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import shake_256
from math import ceil

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import RunError, check
from fedwatt.fleet.trip import FloatArray
from fedwatt.terrain.field import find
from fedwatt.terrain.grid import COLUMN_MASK, ROW_SHIFT, Grid, IntArray
from fedwatt.terrain.power import Residual
from fedwatt.terrain.statistics import Contribution, contribution, touched_nodes
from fedwatt.terrain.survey import Survey

Words = NDArray[np.uint64]

FIXED_POINT = 2.0**30
"""Sums travel as multiples of 2^-30 modulo 2^64: exact to 1e-9, and room up to 8 billion."""
FASTEST_MPS = 40.0


@dataclass(frozen=True, kw_only=True)
class Area:
    """Where the operator's vehicles drive; `west_deg` > `east_deg` crosses the date line."""

    south_deg: float
    north_deg: float
    west_deg: float
    east_deg: float

    def __post_init__(self) -> None:
        check(self, "north_deg", -90 <= self.south_deg < self.north_deg <= 90, "above south_deg")

    def nodes(self, grid: Grid) -> IntArray:
        """All nodes of the area, ascending."""
        first, last = (
            (latitude + 90) / 180 * grid.rows for latitude in (self.south_deg, self.north_deg)
        )
        width = (self.east_deg - self.west_deg) % 360 / 360
        keys = []
        for row in range(int(first), min(ceil(last), grid.rows) + 1):
            count = int(grid.columns(np.array(row)))
            start = int(self.west_deg % 360 / 360 * count)
            columns = start + np.arange(min(ceil(width * count) + 2, count))
            keys.append((row << ROW_SHIFT) | np.sort(columns % count))
        return np.concatenate(keys).astype(np.int64)


def masked(values: Words, me: str, secrets: Mapping[str, bytes], purpose: str) -> Words:
    """`values` under the masks that this vehicle shares with the others, each by its secret."""
    total = values.copy()
    for other, secret in secrets.items():
        stream = shake_256(secret + purpose.encode()).digest(8 * len(values))
        words = np.frombuffer(stream, dtype="<u8")
        total = total + words if me < other else total - words
    return total


def total(messages: Sequence[Words]) -> Words:
    """What the server learns: the sum of all messages, in which the masks have gone."""
    lengths = {len(message) for message in messages}
    if len(lengths) != 1:
        raise RunError(
            f"Masked terrain messages have different lengths: {sorted(lengths)}. All vehicles of "
            "an exchange must use the same area, grid and published nodes."
        )
    added = np.zeros(lengths.pop(), dtype=np.uint64)
    for message in messages:
        added = added + message
    return added


def presence(survey: Survey, candidates: IntArray) -> Words:
    """1 for each candidate node that this vehicle's segments within the candidates touch."""
    inside = np.zeros(len(candidates), dtype=np.uint64)
    at, _ = find(candidates, touched_nodes(survey, candidates))
    inside[at] = 1
    return inside


def agreed_pairs(grid: Grid, nodes: IntArray, segment_s: int) -> tuple[IntArray, IntArray]:
    """Places (one ≤ other) in `nodes` of all pairs that a segment can touch; the same for all."""
    reach = ceil(segment_s * FASTEST_MPS / grid.cell_m) + 1
    row, column = nodes >> ROW_SHIFT, nodes & COLUMN_MASK
    here = column / grid.columns(row)
    ones, others = [], []
    for up in range(reach + 1):
        above = np.minimum(row + up, grid.rows)
        count = grid.columns(above)
        centre = np.round(here * count).astype(np.int64)
        for aside in range(0 if up == 0 else -reach, reach + 1):
            key = (above << ROW_SHIFT) | np.mod(centre + aside, count)
            at, known = find(nodes, key)
            ones.append(np.flatnonzero(known))
            others.append(at[known])
    one, other = np.concatenate(ones), np.concatenate(others)
    code = np.unique(np.minimum(one, other) * len(nodes) + np.maximum(one, other))
    first, second = np.divmod(code, len(nodes))
    return first, second


def packed(
    survey: Survey, own: Residual, nodes: IntArray, pairs: tuple[IntArray, IntArray]
) -> Words:
    """The vehicle's sums over the agreed nodes and pairs, as words to be masked."""
    sums = contribution(survey, own, within=nodes)
    code = pairs[0] * len(nodes) + pairs[1]
    at, _ = find(nodes, sums.keys)
    place, known = find(code, at[sums.row] * len(nodes) + at[sums.column])
    if not known.all():
        raise RunError(
            f"A segment joins nodes farther apart than {FASTEST_MPS:g} m/s allow. "
            "Use the grid and segments of the exchange."
        )
    values = np.zeros(len(code))
    values[place] = sums.value
    parts = [values]
    for of_node in (sums.right, sums.passes, sums.vehicles):
        wide = np.zeros(len(nodes))
        wide[at] = of_node
        parts.append(wide)
    return np.round(np.concatenate(parts) * FIXED_POINT).astype(np.int64).view(np.uint64)


def unpacked(
    added: Words, nodes: IntArray, pairs: tuple[IntArray, IntArray], minimum_vehicles: int
) -> Contribution:
    """The fleet's sums from the total of all messages; refused where fewer than k contributed."""
    numbers: FloatArray = added.view(np.int64) / FIXED_POINT
    value = numbers[: len(pairs[0])]
    right, passes, vehicles = numbers[len(pairs[0]) :].reshape(3, len(nodes))
    if len(nodes) and vehicles.min() < minimum_vehicles - 0.5:
        raise RunError(
            f"A node has fewer than {minimum_vehicles} vehicles. Count again before summing."
        )
    used = value != 0
    return Contribution(
        nodes,
        pairs[0][used].astype(np.int32),
        pairs[1][used].astype(np.int32),
        value[used],
        right,
        passes,
        np.round(vehicles).astype(np.int64),
    )
