"""Requests to vehicles about elevation, and their contributions as numbers that add up.

A secure sum (`fedwatt.privacy.secure`) hides every vehicle's numbers and gives the server their
total alone. Messages have a fixed length that says nothing either: first all nodes of the
operator's service area are counted, again and again until the set of nodes that k vehicles drive
stands still; then sums are exchanged over those nodes, and over pairs of them that one segment can
touch. Each question says what it adds (`contributions`), from which `fedwatt.metrics.sums`
makes words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedwatt.elevation.agreed import FASTEST_MPS, Pairs, agreed_pairs, agreed_segments
from fedwatt.elevation.choose import verdict
from fedwatt.elevation.elevation_map import Field, find, marked, spread
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.measured import segment_residual
from fedwatt.elevation.noise import CLIMB_M, counted_nodes, pair_sums
from fedwatt.elevation.power import Residual
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.statistics import Contribution, contribution, touched_nodes
from fedwatt.elevation.survey import Survey
from fedwatt.errors import RunError
from fedwatt.metrics.sums import LARGEST, Fields
from fedwatt.telemetry.trip import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Question:
    """A request for a sum: how many vehicles drive each node, or sums over these nodes.

    `field` is what is known so far, empty at first; None asks for counts. With `evaluated` vehicles
    are asked what their validation trips say of these fields, and of no nodes. Segments have the
    length of `segment_s`.
    """

    grid: Grid
    settings: ElevationSettings
    nodes: IntArray
    field: Field | None = None
    evaluated: tuple[Field, ...] = ()
    segment_s: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "segment_s", self.segment_s or self.settings.segment_s)

    @property
    def described(self) -> str:
        """Description of the request, for a log."""
        if self.evaluated:
            return f"their validation trips' word on {len(self.evaluated)} fields"
        what = "how many drive" if self.field is None else "sums over"
        return f"{what} {len(self.nodes)} nodes"

    @cached_property
    def pairs(self) -> Pairs:
        """The agreed pairs of nodes."""
        return agreed_pairs(self.grid, self.nodes, self.segment_s)

    @property
    def fields(self) -> Fields:
        """Names and sizes of a contribution; the same for every vehicle."""
        if self.evaluated:
            others = len(self.evaluated) - 1
            return {"error": (1, LARGEST), "gain": (others, LARGEST), "spread": (others, LARGEST)}
        if self.field is None:
            return {"vehicles": (len(self.nodes), 1.0)}
        if self.settings.noise_multiplier:
            length = self.settings.clip
            pairs = len(self.pairs[0])
            return {"weight": (pairs, length), "climb": (pairs, CLIMB_M * length)}
        return sum_fields(self.nodes, self.pairs)

    def answer(self, one: Survey) -> dict[str, FloatArray]:
        """Return a vehicle's contribution."""
        grid = self.grid
        settings = self.settings
        nodes = self.nodes
        field = self.field
        if self.evaluated:
            return vars(verdict(one, self.evaluated, settings))
        one, noise = one.cut(self.segment_s), settings.noise_multiplier
        if field is None and noise:
            return {"vehicles": marked(counted_nodes(one, settings.most_nodes), nodes)}
        if field is None:
            return presence(one, nodes, grid, self.segment_s)
        own = segment_residual(one, field)
        if noise:
            return vars(pair_sums(one, own, nodes, self.pairs).clipped(settings.clip))
        return packed(one, own, nodes, self.pairs, grid, self.segment_s)


def presence(
    survey: Survey, candidates: IntArray, grid: Grid, segment_s: int
) -> dict[str, FloatArray]:
    """1 for each candidate node that this vehicle's segments within the candidates touch.

    Segments too fast for the agreed pairs are left out, here as in `packed`.
    """
    slow = agreed_segments(survey, grid, segment_s)
    return {"vehicles": marked(touched_nodes(slow, candidates), candidates)}


def sum_fields(nodes: IntArray, pairs: Pairs) -> Fields:
    """Return the names and sizes of what `packed` adds."""
    sizes = {"value": len(pairs[0]), "right": len(nodes), "passes": len(nodes)}
    return {name: (size, LARGEST) for name, size in sizes.items()} | {"vehicles": (len(nodes), 1.0)}


def packed(
    survey: Survey,
    own: Residual,
    nodes: IntArray,
    pairs: Pairs,
    grid: Grid,
    segment_s: int,
) -> dict[str, FloatArray]:
    """Return the vehicle's sums over the agreed nodes and pairs; 0 where it has none."""
    sums = contribution(agreed_segments(survey, grid, segment_s), own, within=nodes)
    at, _ = find(nodes, sums.keys)
    code = pairs[0] * len(nodes) + pairs[1]
    place, known = find(code, at[sums.row] * len(nodes) + at[sums.column])
    if not known.all():
        raise RunError(
            f"A segment joins nodes farther apart than {FASTEST_MPS:g} m/s allow. "
            "Use the grid and segments of the exchange."
        )
    by_node = {"right": sums.right, "passes": sums.passes, "vehicles": sums.vehicles.astype(float)}
    return {
        "value": spread(sums.value, place, len(code)),
        **{name: spread(values, at, len(nodes)) for name, values in by_node.items()},
    }


def unpacked(
    sums: Mapping[str, FloatArray],
    nodes: IntArray,
    pairs: Pairs,
    minimum_vehicles: int,
) -> Contribution:
    """Return the fleet's sums from the total of all messages; refused where fewer than k
    contributed.
    """
    value = sums["value"]
    vehicles = sums["vehicles"]
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
