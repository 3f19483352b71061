"""Learn the shared map where only totals over vehicles can be seen.

1. Vehicles say which nodes of the service area they drive; nodes with fewer than k vehicles are
   left out, and the rest is counted again, until nothing more is left out.
2. Vehicles upload sums over these nodes; the server solves for the map.
3. On request 2 is repeated with residuals of a model that has the map.
4. Vehicles evaluate maps of the last sums with other priors, and of longer segments, by sums over
   their validation trips (`choose`).

The server loop is the same for a simulation and for a deployed fleet; what differs is `Totals`.
A vehicle that drops out gets no more requests. The set of nodes that k vehicles share only shrinks
when one of them goes, so counting goes on from where it was and still ends at the set that the
remaining vehicles would have found alone.

Totals are checked against bounds that honest vehicles cannot exceed, because secure aggregation
hides single vehicles. One vehicle can still bend totals within these bounds, unseen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedwatt.elevation.choose import MapErrors, learn_with_prior, solved
from fedwatt.elevation.elevation_map import ElevationMap, empty_map
from fedwatt.elevation.grid import Pairs, distance_m, pairs_of_a_node, scattered
from fedwatt.elevation.normal_equations import NOTHING, Contribution
from fedwatt.elevation.request import MapRequest, unpacked
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import RunError, SettingError
from fedwatt.metrics.sums import (
    MOST_WORDS,
    Total,
    refuse_long,
    words_of,
)
from fedwatt.metrics.sums import Contribution as SumValues
from fedwatt.telemetry.trip import FloatArray, IntArray

MOST_PAIRS = 1000
"""Of one node; beyond, segments reach so far that no message could hold their pairs."""


Totals = Callable[[MapRequest, frozenset[str]], Total]
"""Returns the totals of a request over the vehicles named, and the vehicles that are in them.

Raises where too few are left to make a total, because an empty map would say something else.
"""


@dataclass(frozen=True, eq=False)
class SharedMap:
    """The server's result: the published map.

    `contributors` are all whose sums the map rests on, also those that dropped out later; `nothing`
    says why no node is published, and is empty where some are.
    """

    elevation_map: ElevationMap
    contributors: frozenset[str]
    nothing: str = ""


def refuse_unmaskable(settings: ElevationSettings) -> None:
    """Raise if elevation cannot be learned by secure aggregation with these settings."""
    if not settings.area:
        raise SettingError(
            "With secure.enabled vehicles contribute to all nodes of a service area, so that no "
            "message shows where its vehicle was. Say where the fleet drives, in degrees: "
            "elevation.area = [SOUTH, NORTH, WEST, EAST], such as [42.2, 42.35, -83.85, "
            "-83.65]."
        )
    pairs = pairs_of_a_node(settings.grid, settings.segment_s)
    if pairs > MOST_PAIRS:
        raise SettingError(
            f"elevation.segment_s = {settings.segment_s} is too long for elevation.cell_m = "
            f"{settings.cell_m:g} with secure aggregation: every node would make {pairs:,} "
            "pairs. Choose shorter segments or a larger cell_m."
        )


def learn_from_totals(
    totals: Totals, vehicles: frozenset[str], settings: ElevationSettings
) -> SharedMap:
    """Return the map of the nodes that at least k of the vehicles drive; empty without any.

    It is empty only where a complete count has no such node, or where there are fewer than k
    vehicles at all. Too few contributions are a RunError.
    """
    grid = settings.grid
    learning = _Learning(totals, settings, vehicles, settings.service_area.nodes(grid))

    def exchange(elevation_map: ElevationMap) -> Contribution:
        try:
            sums, pairs = learning.sums_for(elevation_map)
        except _NothingShared:
            if not learning.segment_s:
                raise
            return NOTHING  # of longer segments, which are then not taken
        learning.contributors |= learning.present
        refuse_impossible_map(solved(grid, sums, elevation_map.prior), pairs)
        return sums

    try:
        learning.count()
        elevation_map = learn_with_prior(exchange, learning.evaluate, settings)
    except _NothingShared as why:
        return SharedMap(empty_map(grid), frozenset(), str(why))
    return SharedMap(elevation_map, learning.contributors)


class _NothingShared(Exception):
    """A reason why no node is published."""


@dataclass
class _Learning:
    """State of an exchange: the vehicles still present, and the nodes that may be published."""

    totals: Totals
    settings: ElevationSettings
    present: frozenset[str]
    nodes: IntArray
    contributors: frozenset[str] = frozenset()
    segment_s: int = 0
    """Length of the segments that are counted and summed; 0: the one of the settings."""

    def evaluate(self, maps: Sequence[ElevationMap]) -> MapErrors:
        """Return the validation errors of the present vehicles for these maps."""
        nowhere = self.nodes[:0]
        total = self.total(MapRequest(self.settings, nowhere, evaluated=tuple(maps)))
        return MapErrors(total["error"], total["gain"], total["spread"])

    def count(self) -> None:
        """Leave out nodes of fewer than k vehicles until none is left out any more."""
        before = -1
        while len(self.nodes) != before:
            before = len(self.nodes)
            counts = self.total(self.request(None))["vehicles"]
            if not (counts > 0.5).any():
                raise _NothingShared("nobody has driven in elevation.area")
            self.nodes = self.nodes[counts > self.settings.minimum_vehicles - 0.5]
            if not len(self.nodes):
                raise _NothingShared(
                    f"no node has {self.settings.minimum_vehicles} of the {len(self.present)} "
                    "vehicles that were counted"
                )

    def sums_for(self, elevation_map: ElevationMap) -> tuple[Contribution, Pairs]:
        """Return sums over the nodes and their pairs, each node from k vehicles still present."""
        least = self.settings.minimum_vehicles
        if elevation_map.prior.segment_s != (self.segment_s or self.settings.segment_s):
            # Longer segments touch other nodes: fewer of these have k vehicles, and none is new.
            self.segment_s = elevation_map.prior.segment_s
            self.count()
        while True:
            request = self.request(elevation_map)
            total = self.total(request)
            if total["vehicles"].min() > least - 0.5:
                return unpacked(total, request.nodes, request.pairs, least), request.pairs
            # Somebody dropped out after the last count: this total is not used.
            before = len(self.nodes), self.present
            self.count()
            if before == (len(self.nodes), self.present):
                raise RunError("The vehicles' counts and sums do not agree: one is at fault.")

    def request(self, elevation_map: ElevationMap | None) -> MapRequest:
        """Return a request for the nodes that are left; raise where contributions were too long."""
        length = self.segment_s
        request = MapRequest(self.settings, self.nodes, elevation_map, segment_s=length)
        if length and pairs_of_a_node(request.grid, length) > MOST_PAIRS:
            raise _NothingShared("longer segments would join too many nodes")
        if length and words_of(request.fields) > MOST_WORDS:
            raise _NothingShared("sums over longer segments would be too long")
        refuse_long(request.fields, f"{len(self.nodes):,} nodes")
        return request

    def total(self, request: MapRequest) -> SumValues:
        """Return the total over the present vehicles; those that are not in it are absent now."""
        enough = max(2, self.settings.minimum_vehicles)
        present = len(self.present)
        if present < enough:
            raise _NothingShared(
                f"{present} vehicles have enrolled, and {enough} must drive a node"
            )
        total, self.present = self.totals(request, self.present)
        left = len(self.present)
        if left < enough:
            raise RunError(f"{left} vehicles are in a sum for elevation, and {enough} are needed.")
        if "vehicles" in total:
            refuse_impossible_counts(total["vehicles"], left)
        if "value" in total:
            refuse_impossible_sums(total, request.pairs, left)
        return total


CLIFF = 1.0
"""Grade between two nodes that one segment can join. Bends of a mountain road lie above each other,
so nodes may be steeper than any road (`climb.STEEPEST`)."""
SLACK_M = 1.0


def refuse_impossible_counts(counts: FloatArray, vehicles: int) -> None:
    """Raise unless all counts are whole numbers from 0 to `vehicles`."""
    possible = (np.abs(counts - np.round(counts)) < 1e-6) & (counts > -0.5)
    possible &= counts < vehicles + 0.5
    if not possible.all():
        raise _at_fault(f"A node has {counts[~possible][0]:g} of {vehicles} vehicles")


def refuse_impossible_sums(total: Mapping[str, FloatArray], pairs: Pairs, vehicles: int) -> None:
    """Raise unless passes ≥ 0, AᵀA_ii ≥ 0 and |AᵀA_ij|² ≤ AᵀA_ii · AᵀA_jj, but for roundings."""
    value = total["value"]
    passes = total["passes"]
    # At most half a step of `metrics.sums.LARGEST` per vehicle, and what float64 loses.
    rounding = vehicles**2 * 2.0**-38 + 1e-9
    if passes.min() < -rounding:
        raise _at_fault(f"A node has {passes.min():g} passes")
    itself = pairs[0] == pairs[1]
    diagonal = scattered(value[itself], pairs[0][itself], len(passes))
    if diagonal.min() < -rounding:
        raise _at_fault(f"A node's sum of squares is {diagonal.min():g}")
    most = np.sqrt(np.maximum(diagonal, 0) + rounding)
    if (np.abs(value) > (1 + 1e-9) * most[pairs[0]] * most[pairs[1]] + rounding).any():
        raise _at_fault("The sum of a pair of nodes is larger than those of both nodes allow")


def refuse_impossible_map(elevation_map: ElevationMap, pairs: Pairs) -> None:
    """Raise unless elevations are finite and no two nodes of `pairs` make a cliff."""
    height_m = elevation_map.elevation_m
    if not np.isfinite(height_m).all():
        raise _at_fault("The vehicles' sums make no map")
    joined = elevation_map.region[pairs[0]] == elevation_map.region[pairs[1]]
    first, second = (places[joined] for places in pairs)
    lat, lon = elevation_map.grid.positions(elevation_map.keys)
    metres = distance_m(lat[first], lon[first], lat[second], lon[second])
    rise_m = np.abs(height_m[second] - height_m[first])
    steep = rise_m > CLIFF * metres + SLACK_M
    if steep.any():
        at = np.flatnonzero(steep)[rise_m[steep].argmax()]
        raise _at_fault(
            f"The vehicles' sums make two nodes {metres[at]:.0f} m apart differ by "
            f"{rise_m[at]:.3g} m in height"
        )


def _at_fault(what: str) -> RunError:
    return RunError(
        f"{what}, which cannot be. One of the vehicles is at fault, and secure aggregation hides "
        "which; --resume tries again."
    )
