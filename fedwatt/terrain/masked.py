"""A vehicle's part in an exchange under masks, as named numbers that a secure sum adds up.

A secure sum (`fedwatt.privacy.secure`) hides every vehicle's numbers and gives the server their
total alone. Messages have a fixed length that says nothing either: first all nodes of the
operator's service area are counted, again and again until the set of nodes that k vehicles drive
stands still; then sums are exchanged over those nodes, and over pairs of them that one segment can
touch. Each exchange says what it adds (`summands`), from which `fedwatt.privacy.fixed_point` makes
words.
"""

from collections.abc import Mapping

import numpy as np

from fedwatt.data.trip import FloatArray
from fedwatt.errors import RunError
from fedwatt.terrain.agreed import Pairs, agreed_segments, over_agreed
from fedwatt.terrain.field import find, spread
from fedwatt.terrain.grid import Grid, IntArray
from fedwatt.terrain.power import Residual
from fedwatt.terrain.statistics import Contribution, contribution, touched_nodes
from fedwatt.terrain.summands import LARGEST, Fields
from fedwatt.terrain.survey import Survey


def count_fields(candidates: IntArray) -> Fields:
    """What `presence` adds."""
    return {"vehicles": (len(candidates), 1.0)}


def presence(
    survey: Survey, candidates: IntArray, grid: Grid, segment_s: int
) -> dict[str, FloatArray]:
    """1 for each candidate node that this vehicle's segments within the candidates touch.

    Segments too fast for the agreed pairs are left out, here as in `packed`.
    """
    slow = agreed_segments(survey, grid, segment_s)
    at, _ = find(candidates, touched_nodes(slow, candidates))
    return {"vehicles": spread(np.ones(len(at)), at, len(candidates))}


def sum_fields(nodes: IntArray, pairs: Pairs) -> Fields:
    """What `packed` adds."""
    return {
        "value": (len(pairs[0]), LARGEST),
        "right": (len(nodes), LARGEST),
        "passes": (len(nodes), LARGEST),
        "vehicles": (len(nodes), 1.0),
    }


def packed(
    survey: Survey,
    own: Residual,
    nodes: IntArray,
    pairs: Pairs,
    grid: Grid,
    segment_s: int,
) -> dict[str, FloatArray]:
    """The vehicle's sums over the agreed nodes and pairs."""
    sums = contribution(agreed_segments(survey, grid, segment_s), own, within=nodes)
    value, right = over_agreed(sums, nodes, pairs)
    at, _ = find(nodes, sums.keys)
    return {
        "value": value,
        "right": right,
        "passes": spread(sums.passes, at, len(nodes)),
        "vehicles": spread(sums.vehicles.astype(float), at, len(nodes)),
    }


def unpacked(
    sums: Mapping[str, FloatArray],
    nodes: IntArray,
    pairs: Pairs,
    minimum_vehicles: int,
) -> Contribution:
    """The fleet's sums from the total of all messages; refused where fewer than k contributed."""
    value, vehicles = sums["value"], sums["vehicles"]
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
        sums["right"],
        sums["passes"],
        np.round(vehicles).astype(np.int64),
    )
