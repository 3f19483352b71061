"""The server's requests to vehicles about elevation, and the vehicles' contributions.

A vehicle contributes named arrays, of which the server sees the total alone (`fedwatt.metrics.sums`
and secure aggregation). Their lengths reveal nothing either: first all nodes of the operator's
service area are counted, again and again until the set of nodes that k vehicles drive is stable;
then sums are exchanged over those nodes, and over pairs of them that one segment can touch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.elevation.choose import GRADES, map_errors
from fedwatt.elevation.elevation_map import (
    ElevationMap,
    array_of,
    evaluated_prefix,
    map_from_arrays,
)
from fedwatt.elevation.grid import (
    COLUMN_MASK,
    FASTEST_MPS,
    ROW_SHIFT,
    Grid,
    Pairs,
    agreed_pairs,
    find,
    marked,
    pair_reach,
    scattered,
)
from fedwatt.elevation.normal_equations import Contribution, contribution, touched_nodes
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.survey import Residual, Survey, segment_residual, whole_survey
from fedwatt.elevation.vehicle_map import vehicle_maps
from fedwatt.errors import DataError, RunError
from fedwatt.metrics.sums import LARGEST, Fields
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows import DataSettings


@dataclass(frozen=True, eq=False)
class MapRequest:
    """A request for a sum: how many vehicles drive each node, or sums over these nodes.

    `elevation_map` is the last map, empty at first; without one the request is for counts. With
    `evaluated` it is for errors on validation trips with these maps, and names no nodes. Segments
    have the length of `segment_s`.
    """

    settings: ElevationSettings
    nodes: IntArray
    elevation_map: ElevationMap | None = None
    evaluated: tuple[ElevationMap, ...] = ()
    segment_s: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "segment_s", self.segment_s or self.settings.segment_s)

    @property
    def grid(self) -> Grid:
        """The grid of the nodes."""
        return self.settings.grid

    @cached_property
    def pairs(self) -> Pairs:
        """The agreed pairs of nodes."""
        return agreed_pairs(self.grid, self.nodes, self.segment_s)

    @property
    def fields(self) -> Fields:
        """Names and sizes of a contribution; the same for every vehicle."""
        if self.evaluated:
            further = (len(self.evaluated) - 1, LARGEST)
            return {"error": (1, LARGEST), "gain": further, "spread": further}
        if self.elevation_map is None:
            return {"vehicles": (len(self.nodes), 1.0)}
        nodes = len(self.nodes)
        sizes = {"value": len(self.pairs[0]), "right": nodes, "passes": nodes}
        return {name: (size, LARGEST) for name, size in sizes.items()} | {"vehicles": (nodes, 1.0)}

    def answer(self, survey: Survey) -> dict[str, FloatArray]:
        """Return a vehicle's contribution."""
        if self.evaluated:
            return vars(map_errors(survey, self.evaluated, self.settings))
        cut = survey.cut(self.segment_s)
        if self.elevation_map is None:
            return presence(cut, self.nodes, self.grid, self.segment_s)
        residuals = segment_residual(cut, self.elevation_map)
        return packed(cut, residuals, self.nodes, self.pairs, self.grid, self.segment_s)


def presence(
    survey: Survey, candidates: IntArray, grid: Grid, segment_s: int
) -> dict[str, FloatArray]:
    """Mark the candidate nodes that this vehicle's segments within the candidates touch.

    Segments too fast for the agreed pairs are left out, here as in `packed`.
    """
    slow = agreed_segments(survey, grid, segment_s)
    return {"vehicles": marked(touched_nodes(slow, candidates), candidates)}


def packed(
    survey: Survey,
    residuals: Residual,
    nodes: IntArray,
    pairs: Pairs,
    grid: Grid,
    segment_s: int,
) -> dict[str, FloatArray]:
    """Return the vehicle's sums over the agreed nodes and pairs; 0 where it has none."""
    sums = contribution(agreed_segments(survey, grid, segment_s), residuals, within=nodes)
    at, _ = find(nodes, sums.keys)
    code = pairs[0] * len(nodes) + pairs[1]
    place, is_agreed = find(code, at[sums.row] * len(nodes) + at[sums.column])
    if not is_agreed.all():
        raise RunError(
            f"A segment joins nodes farther apart than {FASTEST_MPS:g} m/s allow. "
            "Use the grid and segments of the exchange."
        )
    by_node = {"right": sums.right, "passes": sums.passes, "vehicles": sums.vehicles.astype(float)}
    return {
        "value": scattered(sums.value, place, len(code)),
        **{name: scattered(values, at, len(nodes)) for name, values in by_node.items()},
    }


def unpacked(
    sums: Mapping[str, FloatArray],
    nodes: IntArray,
    pairs: Pairs,
    minimum_vehicles: int,
) -> Contribution:
    """Return the fleet's sums from a total; raise where a node has fewer than k vehicles."""
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


def agreed_segments(survey: Survey, grid: Grid, segment_s: int) -> Survey:
    """Return the survey without segments of which two nodes make no pair of `agreed_pairs`.

    A vehicle decides this by itself, before anything is published: what it does not sum it must not
    count for either, or a node would end up with fewer vehicles than were counted.
    """
    reach, sideways = pair_reach(grid, segment_s)
    needed = survey.weights != 0
    row = survey.keys >> ROW_SHIFT
    column = survey.keys & COLUMN_MASK
    count = grid.columns(row)
    agreed = survey.placed.copy()
    corners = survey.keys.shape[1]
    for lower in range(corners):
        for other in range(corners):
            up = row[:, other] - row[:, lower]
            centre = np.round(column[:, lower] / count[:, lower] * count[:, other]).astype(np.int64)
            aside = np.mod(column[:, other] - centre, count[:, other])
            aside = np.minimum(aside, count[:, other] - aside)
            # A pair is looked at from its lower node, as in `agreed_pairs`.
            apart = (up > reach) | ((up >= 0) & (aside > sideways))
            agreed &= ~(apart & needed[:, lower] & needed[:, other])
    return replace(survey, placed=agreed)


MOST_EVALUATED = 1 + len(GRADES)


@dataclass(frozen=True, eq=False)
class VehicleElevation:
    """A vehicle's surveys; each is made when it is first needed."""

    vehicle: Vehicle
    settings: ElevationSettings
    data: DataSettings

    def __post_init__(self) -> None:
        if not self.settings.area:
            raise DataError("the configuration has no service area")

    @property
    def grid(self) -> Grid:
        """The grid of the map that is being learned."""
        return self.settings.grid

    @cached_property
    def training(self) -> Survey:
        """Segments of the training trips, and all that choosing a prior needs."""
        lengths = self.settings.lengths
        measured = self.settings.measures
        return whole_survey(self.vehicle, self.grid, lengths, self.data, measured=measured)

    @cached_property
    def area(self) -> IntArray:
        """Nodes of the service area, ascending."""
        return self.settings.service_area.nodes(self.grid)

    def request(
        self,
        arrays: Mapping[str, NDArray[Any]],
        *,
        counting: bool = False,
        evaluated: int = 0,
        segment_s: int = 0,
    ) -> MapRequest:
        """Return the request in `arrays`; DataError unless it is within the service area.

        It is for counts (`counting`), for errors with so many maps (`evaluated`), or for sums.
        """
        if segment_s and segment_s not in self.settings.lengths:
            raise DataError(f"the request is about segments of {segment_s} s")
        if evaluated:
            if not 2 <= evaluated <= MOST_EVALUATED:
                raise DataError(f"the request is about {evaluated} maps")
            prefixes = (evaluated_prefix(number) for number in range(evaluated))
            maps = tuple(map_from_arrays(arrays, self.grid, prefix) for prefix in prefixes)
            return MapRequest(self.settings, self.area[:0], evaluated=maps)
        nodes: IntArray = array_of(arrays, "nodes", np.int64)
        _, inside = find(self.area, nodes)
        if not len(nodes) or not inside.all() or (np.diff(nodes) <= 0).any():
            raise DataError("the request is about other nodes than those of the service area")
        elevation_map = None if counting else map_from_arrays(arrays, self.grid)
        return MapRequest(self.settings, nodes, elevation_map, segment_s=segment_s)

    def vehicle_map(self, shared: ElevationMap) -> ElevationMap:
        """Return the vehicle's map: the shared map with its private nodes added."""
        name = self.vehicle.name
        return vehicle_maps([name], {name: self.training}, shared, self.settings)[name]
