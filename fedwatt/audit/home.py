"""Where a vehicle lives, from the counts that hills are learned from.

A vehicle adds 1 for every node of the service area that it drives. In the clear that is a map of
where it drives, and the middle of it is near where it lives; in a sum it is how many vehicles drive
each node, and the best guess is the busiest. Where a lying server has two counts that differ by the
victim, their difference is its map again. The policy counts changes of the vehicles in sums of
hills (`guard.GROUPS`), so a server has at most `set_changes_a_day` vehicles' maps a day, and does
not have less of any of them; an owner who wants none given away sets `hills = false`. Noise for
hills is the server's own, so a lying server has the counts without it.

Score: the distance in km between a guess and the node at which most of a vehicle's trips begin; the
median over all vehicles that have positions, each of them the victim once.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedwatt.audit import levels
from fedwatt.telemetry import Vehicle

CELL_DEGREES = 0.001
"""About 100 m: the nodes of a grid, for counting alone."""
KM_PER_DEGREE = 111.2

Nodes = NDArray[np.int64]


def home_position(vehicles: Sequence[Vehicle]) -> dict[str, float]:
    """Median distance in km from the guess to the home of each vehicle that has positions."""
    driven, homes = [], []
    for vehicle in vehicles:
        cells = [_cells(trip.channels) for trip in vehicle.trips if "latitude_deg" in trip.channels]
        cells = [own for own in cells if len(own)]
        if cells:
            driven.append(np.unique(np.concatenate(cells), axis=0))
            starts = Counter(tuple(own[0]) for own in cells)
            homes.append(np.array(starts.most_common(1)[0][0]))
    if not driven:
        return {}
    nodes, counts = np.unique(np.concatenate(driven), axis=0, return_counts=True)
    differences = [counts - _counts(nodes, _without(driven, k)) for k in range(len(driven))]
    differenced = [np.median(nodes[own == 1], axis=0) for own in differences]
    guesses = {
        levels.PLAIN: [np.median(own, axis=0) for own in driven],
        levels.CURIOUS: [nodes[counts.argmax()]] * len(driven),
        levels.MASKS: differenced,
        levels.POLICY: differenced,
        levels.NOISE: differenced,
        levels.GUESS: [np.median(nodes, axis=0)] * len(driven),
    }
    return {
        level: float(np.median([_km(a, b) for a, b in zip(own, homes, strict=True)]))
        for level, own in guesses.items()
    }


def _without(driven: Sequence[Nodes], place: int) -> list[Nodes]:
    return [own for k, own in enumerate(driven) if k != place]


def _counts(nodes: Nodes, driven: Sequence[Nodes]) -> NDArray[np.int64]:
    """How many of the vehicles drive each of the nodes [N, 2], ascending."""
    # Every node once more, so that all of them are there.
    _, counts = np.unique(np.concatenate([nodes, *driven]), axis=0, return_counts=True)
    return counts - 1


def _cells(channels: Mapping[str, NDArray[np.float64]]) -> Nodes:
    """The nodes that a trip drives, in its order, [N, 2]."""
    points = np.stack([channels["latitude_deg"], channels["longitude_deg"]], axis=1)
    points = points[np.isfinite(points).all(axis=1)]
    return np.floor(points / CELL_DEGREES).astype(np.int64)


def _km(one: NDArray[np.floating] | Nodes, other: Nodes) -> float:
    north, east = (np.asarray(one, float) - other) * CELL_DEGREES * KM_PER_DEGREE
    return float(np.hypot(north, east * np.cos(np.radians(float(other[0]) * CELL_DEGREES))))
