"""Match a vehicle's positions to roads, and read the attributes of the matched road.

A position belongs to the segment of road with the lowest distance plus a penalty for pointing
elsewhere than the vehicle moves (so that neither a crossing street nor the opposite carriageway
wins by a metre), within `REACH_M`. Flags are set within `NEAR_M` of their place; those of a road
(junctions, signals, crossings) only on that road, not on a bridge above it. Segments and flags are
found through boxes that are sorted into the cells of a grid.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import cos, radians
from typing import NamedTuple

import numpy as np

from fedwatt.telemetry.channels import POSITION
from fedwatt.telemetry.cleaning.glitches import METRES_PER_DEGREE
from fedwatt.telemetry.cleaning.resample import last_known
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray, Trip, Vehicle


@dataclass(frozen=True)
class Box:
    """Sides in degrees, WGS 84; a box does not cross the 180th meridian."""

    south: float
    west: float
    north: float
    east: float

    def covers(self, other: "Box") -> bool:
        """Return whether no part of `other` lies outside."""
        within_latitudes = self.south <= other.south and other.north <= self.north
        return within_latitudes and self.west <= other.west and other.east <= self.east

    def meets(self, other: "Box") -> bool:
        """Return whether the two have a place in common."""
        same_latitudes = self.south <= other.north and other.south <= self.north
        return same_latitudes and self.west <= other.east and other.west <= self.east

    def widened(self, metres: float) -> "Box":
        """Return the box with a margin of `metres` all around.

        >>> Box(60, 10, 60, 10).widened(111_195).east.__round__(2)
        12.06
        """
        up = metres / METRES_PER_DEGREE
        # Degrees of longitude are shortest at the side nearer to a pole.
        pole = min(max(abs(self.south), abs(self.north)) + up, 89.0)
        aside = up / cos(radians(pole))
        return Box(self.south - up, self.west - aside, self.north + up, self.east + aside)

    def __str__(self) -> str:
        latitudes = f"latitude {self.south:.1f} to {self.north:.1f}"
        return f"{latitudes} and longitude {self.west:.1f} to {self.east:.1f}"


def has_positions(trip: Trip) -> bool:
    """Return whether the trip has a latitude and a longitude at least once."""
    recorded = all(name in trip.channels for name in POSITION)
    return recorded and bool(np.isfinite(places(trip)).all(axis=1).any())


def places(trip: Trip) -> FloatArray:
    """Return latitude and longitude of a trip, degrees. [seconds, 2]."""
    return np.stack([trip.channels[name] for name in POSITION], axis=1)


def region(trips: Iterable[Trip]) -> Box | None:
    """Return the box around all positions; None if there are none."""
    located = [places(trip) for trip in trips if has_positions(trip)]
    if not located:
        return None
    south, west = np.min([np.nanmin(place_deg, axis=0) for place_deg in located], axis=0).tolist()
    north, east = np.max([np.nanmax(place_deg, axis=0) for place_deg in located], axis=0).tolist()
    return Box(south, west, north, east)


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
        """Return positions and boxes that share a cell, in order of positions. Both [pairs]."""
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
    """Return (i, index within i) of each entry, where i has `counts[i]` entries.

    >>> _expanded(np.array([2, 0, 1]))
    (array([0, 0, 2]), array([0, 1, 0]))
    """
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)


REACH_M = 30.0
NEAR_M = 25.0
# What a road at right angles must be nearer by to be chosen; twice that against a one-way street.
TURN_M = 15.0
HEADING_M = 5.0
HEADING_SAMPLES = 2
LEAST_SHARE = 0.5
FLAGS = ("intersection", "bus_stop", "focus_point")
ANYWHERE = -1


class Match(NamedTuple):
    """For each second: the segment (-1 off the map), and whether it is driven from its start."""

    segment: IntArray
    forward: BoolArray


@dataclass(frozen=True, eq=False)
class Roads:
    """Drivable roads of a region.

    Segments: `start_deg`, `end_deg` [segments, 2] (latitude, longitude), `way` [segments].
    Ways: `limit_mps` [ways, 2] (along and against), `assumed` [ways, 2] (a usual limit stands in),
    `oneway` [ways] (from start to end of its segments).
    Spots: `spot_deg` [spots, 2], `spot_way` [spots] (a way, or ANYWHERE), `spot_flags` [spots, 3].
    """

    start_deg: FloatArray
    end_deg: FloatArray
    way: IntArray
    limit_mps: FloatArray
    assumed: BoolArray
    oneway: BoolArray
    spot_deg: FloatArray
    spot_way: IntArray
    spot_flags: BoolArray

    @cached_property
    def segments(self) -> BoxIndex:
        """Segments by the cells within their reach."""
        low = np.minimum(self.start_deg, self.end_deg)
        high = np.maximum(self.start_deg, self.end_deg)
        around = _around(low, high, REACH_M)
        return BoxIndex.of(low - around, high + around)

    @cached_property
    def spots(self) -> BoxIndex:
        """Spots by the cells near them."""
        around = _around(self.spot_deg, self.spot_deg, NEAR_M)
        return BoxIndex.of(self.spot_deg - around, self.spot_deg + around)

    def match(self, place_deg: FloatArray) -> Match:
        """Return the segment each position of a drive belongs to. `place_deg` is [seconds, 2],
        finite.
        """
        second, segment = self.segments.pairs(place_deg)
        start_m = _metres(self.start_deg[segment], place_deg[second])
        along_m = _metres(self.end_deg[segment], place_deg[second]) - start_m
        length_m = np.hypot(*along_m.T)
        share = np.clip(-(start_m * along_m).sum(axis=1) / length_m**2, 0.0, 1.0)
        distance_m = np.hypot(*(start_m + share[:, None] * along_m).T)
        heading = headings(place_deg)[second]
        cosine = (heading * along_m).sum(axis=1) / length_m
        oneway = self.oneway[self.way[segment]]
        # Where the heading is unknown (0, 0) the penalty is the same for all.
        score = distance_m + TURN_M * (1 - np.where(oneway, cosine, np.abs(cosine)))
        near = np.flatnonzero(distance_m <= REACH_M)
        best = near[np.lexsort((score[near], second[near]))]
        seconds, first = np.unique(second[best], return_index=True)
        matched = np.full(len(place_deg), -1)
        matched[seconds] = segment[best[first]]
        forward = np.ones(len(place_deg), bool)
        forward[seconds] = cosine[best[first]] >= 0
        return Match(matched, forward)

    def flags(self, place_deg: FloatArray, way: IntArray) -> BoolArray:
        """Return the flags near each position on its way (-1 off the map), [seconds, flags]."""
        second, spot = self.spots.pairs(place_deg)
        distance_m = np.hypot(*_metres(self.spot_deg[spot], place_deg[second]).T)
        here = (self.spot_way[spot] == ANYWHERE) | (self.spot_way[spot] == way[second])
        # Off the map nothing is near, and -1 must not be taken for ANYWHERE.
        here &= (distance_m <= NEAR_M) & (way[second] >= 0)
        flags = np.zeros((len(place_deg), len(FLAGS)), bool)
        np.logical_or.at(flags, second[here], self.spot_flags[spot[here]])
        return flags


def headings(place_deg: FloatArray) -> FloatArray:
    """Return unit vectors (north, east) of motion, held while standing; zeros if it never moves.

    >>> headings(np.array([[0.0, 0.0], [0.0, 0.0001], [0.0, 0.0002]])).tolist()
    [[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    """
    index = np.arange(len(place_deg))
    later = np.minimum(index + HEADING_SAMPLES, len(index) - 1)
    earlier = np.maximum(index - HEADING_SAMPLES, 0)
    moved_m = _metres(place_deg[later], place_deg[earlier])
    length_m = np.hypot(*moved_m.T)
    moving = length_m >= HEADING_M
    if not moving.any():
        return np.zeros_like(moved_m)
    last = last_known(moving)
    return np.asarray(moved_m[last] / length_m[last, None])


def with_map(vehicle: Vehicle, roads: Roads) -> Vehicle:
    """Return the vehicle with speed limit and flags in every trip that the roads cover."""
    trips = []
    covered = 0
    seconds = 0
    assumed = 0
    for trip in vehicle.trips:
        matched = add_map(trip, roads)
        if matched is None:
            trips.append(trip)
            continue
        trips.append(matched[0])
        covered += 1
        seconds += trip.seconds
        assumed += matched[1]
    facts = {"trips_with_map": covered, "samples_with_map": seconds, "limits_assumed": assumed}
    return replace(vehicle, trips=tuple(trips), facts={**vehicle.facts, **facts})


def add_map(trip: Trip, roads: Roads) -> tuple[Trip, int] | None:
    """Return the trip with map channels and how many samples have an assumed limit; None if not
    covered.

    A trip is covered if at least `LEAST_SHARE` of its samples lie on a road. Where it leaves the
    map (a car park, a gap in the map) the last limit stands and no flag is set.
    """
    if not has_positions(trip):
        return None
    place_deg = places(trip)
    rows = np.flatnonzero(np.isfinite(place_deg).all(axis=1))
    segment = np.full(len(place_deg), -1)
    forward = np.ones(len(place_deg), bool)
    segment[rows], forward[rows] = roads.match(place_deg[rows])
    on_road = segment >= 0
    if on_road.mean() < LEAST_SHARE:
        return None
    way = np.where(on_road, roads.way[segment], -1)
    flags = np.zeros((len(place_deg), len(FLAGS)), bool)
    flags[rows] = roads.flags(place_deg[rows], way[rows])
    last = last_known(on_road)
    against = np.where(forward, 0, 1)[last]
    channels = {
        **trip.channels,
        "speed_limit_mps": roads.limit_mps[way[last], against],
        **{name: flags[:, i].astype(float) for i, name in enumerate(FLAGS)},
    }
    return replace(trip, channels=channels), int(roads.assumed[way[last], against].sum())


def _metres(place_deg: FloatArray, origin_deg: FloatArray) -> FloatArray:
    """Return metres north and east of `origin_deg`, to 1e-4 over a kilometre. [..., 2]."""
    difference = (place_deg - origin_deg) * METRES_PER_DEGREE
    difference[..., 1] *= np.cos(np.radians(origin_deg[..., 0]))
    return np.asarray(difference)


def _around(low_deg: FloatArray, high_deg: FloatArray, metres: float) -> FloatArray:
    """Return degrees of latitude and longitude that span `metres` or more, [boxes, 2]."""
    up = metres / METRES_PER_DEGREE
    pole = np.maximum(np.abs(low_deg[:, 0]), np.abs(high_deg[:, 0])) + up
    aside = up / np.cos(np.radians(np.minimum(pole, 89.0)))
    return np.stack([np.full(len(aside), up), aside], axis=1)
