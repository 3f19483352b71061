"""Read the drivable roads of a region from an OpenStreetMap extract: .osm, .osm.gz, .bz2, .pbf.

osmium streams the file and keeps the positions of its nodes in a temporary file, so memory holds no
more than the roads of the region asked for.

An intersection is a node where roads (not driveways) leave in at least three directions, or with
traffic signals. Focus points are nodes of `FOCUS` on a road. Bus stops mostly stand beside it.
Speed limits are those of the key `maxspeed`, else the usual one of the road's class.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np

from fedwatt.errors import DataError, optional
from fedwatt.telemetry.channels import CHANNELS
from fedwatt.telemetry.maps.roads import ANYWHERE, Box, Roads, region
from fedwatt.telemetry.trip import FloatArray, Vehicle

KMH = 1 / 3.6
UNITS = {"": KMH, "km/h": KMH, "kmh": KMH, "kph": KMH, "mph": 1.609344 * KMH}
# Without a limit: what Germany advises on such motorways. Walking pace: its upper end.
WORDS = {"none": 130 * KMH, "walk": 7 * KMH}
NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z/]*)")

# Most streets carry no `maxspeed`; a usual limit of their class stands in, and is counted.
USUAL_KMH = {
    "motorway": 110.0,
    "trunk": 90.0,
    "primary": 70.0,
    "secondary": 60.0,
    "tertiary": 50.0,
    "motorway_link": 70.0,
    "trunk_link": 60.0,
    "primary_link": 50.0,
    "secondary_link": 50.0,
    "tertiary_link": 50.0,
    "unclassified": 50.0,
    "residential": 40.0,
    "road": 50.0,
    "living_street": 15.0,
    "service": 20.0,
}


def limit_mps(text: str) -> float:
    """Return the limit that a value of `maxspeed` states; NaN where it states none.

    Of several values the lowest counts. National codes such as `DE:urban` are not looked up.

    >>> [round(limit_mps(text) * 3.6, 1) for text in ("50", "30 mph", "walk", "none", "60;40")]
    [50.0, 48.3, 7.0, 130.0, 40.0]
    >>> limit_mps("DE:urban"), limit_mps("signals"), limit_mps("500")
    (nan, nan, nan)
    """
    lowest = min((_single_limit(piece.strip().lower()) for piece in text.split(";")), default=inf)
    return lowest if lowest < inf else nan


def _single_limit(text: str) -> float:
    """Return one limit in m/s; infinity where `text` is none."""
    number = NUMBER.fullmatch(text)
    if number is not None and number[2] in UNITS:
        value = float(number[1]) * UNITS[number[2]]
    else:
        value = WORDS.get(text, inf)
    plausible = CHANNELS["speed_limit_mps"]
    return value if plausible.low <= value <= plausible.high else inf


SUFFIXES = (".osm", ".osm.gz", ".osm.bz2", ".pbf")
FOCUS_HIGHWAYS = (
    "crossing",
    "give_way",
    "mini_roundabout",
    "motorway_junction",
    "stop",
    "traffic_signals",
    "turning_circle",
    "turning_loop",
)
FOCUS = (*(("highway", value) for value in FOCUS_HIGHWAYS), ("railway", "level_crossing"))
PLATFORMS = (("public_transport", "platform"), ("public_transport", "stop_position"))
BUS_STOPS = (("highway", "bus_stop"), *PLATFORMS)
ARMS = 3
# Beyond what any position can touch; and further, so that the next vehicle needs no reading.
MARGIN_M = 500.0
AHEAD_M = 10_000.0
UNKNOWN = 2**31 - 1  # a coordinate that osmium does not know
COORDINATE_DEG = 1e-7


class Extract:
    """An extract on disk, read as far as vehicles go, and again only when one goes further.

    A vehicle gets the same roads whatever was read for others before (see `roads`).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        _osmium()
        if not self.path.is_file():
            raise DataError(f"{path} does not exist or is no file.")
        if not self.path.name.lower().endswith(SUFFIXES):
            raise DataError(
                f"{self.path.name}: an OpenStreetMap extract is one of {', '.join(SUFFIXES)}."
            )
        self._read: tuple[Box, Roads] | None = None

    def around(self, vehicle: Vehicle) -> Roads | None:
        """Return the roads around a vehicle's trips; None if it has no positions."""
        needed = region(vehicle.trips)
        if needed is None:
            return None
        needed = needed.widened(MARGIN_M)
        if self._read is None or not self._read[0].covers(needed):
            wider = needed.widened(AHEAD_M)
            # Let go of the old roads before reading the new.
            self._read = None
            self._read = wider, read_roads(self.path, wider)
        return self._read[1]


@dataclass
class _Ways:
    """Ways and tagged nodes of a region while they are read."""

    segments: list[tuple[float, ...]] = field(default_factory=list)
    """Way, then node, latitude and longitude of the start and of the end."""
    nodes: list[tuple[float, ...]] = field(default_factory=list)
    """Way, node, latitude, longitude of every node of a way whose place is known."""
    limits: list[tuple[float, float, float]] = field(default_factory=list)
    """Along, against, and the usual one of its class."""
    oneway: list[bool] = field(default_factory=list)
    street: list[bool] = field(default_factory=list)
    focus: list[int] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)
    stops: list[tuple[float, float]] = field(default_factory=list)
    # Drivable ways of the file whose nodes it does not hold.
    without_nodes: int = 0


def read_roads(path: Path, box: Box) -> Roads:
    """Read the drivable ways that meet `box`, and the features on and beside them."""
    ways = _Ways()
    try:
        for entity in _entities(path):
            if entity.is_node():
                _add_node(ways, entity, box)
            else:
                _add_way(ways, entity, box)
    except RuntimeError as error:
        raise DataError(f"{path.name} cannot be read as OpenStreetMap data ({error}).") from error
    if ways.without_nodes and not ways.limits:
        raise DataError(
            f"{path.name} has roads but not the nodes they are made of, or has them after the "
            "roads. Sort it (osmium sort IN -o OUT), or extract it again with complete ways."
        )
    return _roads(ways)


def _entities(path: Path) -> Iterator[Any]:
    """Return drivable ways and tagged nodes; nodes come before ways in every extract."""
    osmium = _osmium()
    drivable = [("highway", value) for value in USUAL_KMH]
    tag_filter = osmium.filter.TagFilter(*drivable, *FOCUS, *BUS_STOPS)
    reading = osmium.FileProcessor(str(path), osmium.osm.NODE | osmium.osm.WAY)
    return iter(reading.with_locations("sparse_file_array").with_filter(tag_filter))


def _osmium() -> Any:
    return optional("osmium", "Map attributes need osmium: pip install 'fedwatt[osm]'.")


def _add_node(ways: _Ways, node: Any, box: Box) -> None:
    latitude = node.location.lat
    longitude = node.location.lon
    if not box.meets(Box(latitude, longitude, latitude, longitude)):
        return
    tags = node.tags
    if tags.get("highway") == "traffic_signals":
        ways.signals.append(node.id)
    if any(tags.get(key) == value for key, value in FOCUS):
        ways.focus.append(node.id)
    # Trains and ferries have platforms, too.
    for_buses = "public_transport" in tags and tags.get("bus") == "yes"
    if tags.get("highway") == "bus_stop" or for_buses:
        ways.stops.append((latitude, longitude))


def _add_way(ways: _Ways, way: Any, box: Box) -> None:
    tags = way.tags
    kind = tags.get("highway", "")
    if kind not in USUAL_KMH or tags.get("motor_vehicle") == "no" or tags.get("area") == "yes":
        return
    located = [
        (node.ref, COORDINATE_DEG * node.y, COORDINATE_DEG * node.x, place)
        for place, node in enumerate(way.nodes)
        if node.x != UNKNOWN
    ]
    if not located:
        ways.without_nodes += 1
        return
    _, latitudes, longitudes, _ = zip(*located, strict=True)
    if not box.meets(Box(min(latitudes), min(longitudes), max(latitudes), max(longitudes))):
        return
    along = limit_mps(tags.get("maxspeed:forward") or tags.get("maxspeed", ""))
    against = limit_mps(tags.get("maxspeed:backward") or tags.get("maxspeed", ""))
    if tags.get("oneway") in ("-1", "reverse"):
        located.reverse()
        along, against = against, along
    number = len(ways.limits)
    ways.nodes += [(number, *node[:3]) for node in located]
    # A segment leads from each node to the next of its way, if both are known and apart.
    ways.segments += [
        (number, *start[:3], *end[:3])
        for start, end in pairwise(located)
        if abs(start[3] - end[3]) == 1 and start[1:3] != end[1:3]
    ]
    ways.limits.append((along, against, USUAL_KMH[kind] * KMH))
    ways.oneway.append(_is_oneway(tags))
    ways.street.append(kind != "service")


def _is_oneway(tags: Any) -> bool:
    stated = tags.get("oneway")
    if stated is not None:
        return stated in ("yes", "true", "1", "-1", "reverse")
    return tags.get("junction") in ("roundabout", "circular") or tags.get("highway") == "motorway"


def _roads(ways: _Ways) -> Roads:
    segment = np.array(ways.segments, float).reshape(-1, 7)
    of_way = segment[:, 0].astype(np.int64)
    nodes = np.array(ways.nodes, float).reshape(-1, 4)
    street = segment[np.array(ways.street, bool)[of_way]]
    crossroads = np.isin(nodes[:, 1], [*junctions(street[:, 1], street[:, 4]), *ways.signals])
    focus = np.isin(nodes[:, 1], ways.focus)
    on_road = crossroads | focus
    # In the order of `roads.FLAGS`.
    flags = np.stack([crossroads, np.zeros_like(focus), focus], axis=1)[on_road]
    stops = np.array(ways.stops, float).reshape(-1, 2)
    limits = np.array(ways.limits, float).reshape(-1, 3)
    assumed = np.isnan(limits[:, :2])
    return Roads(
        start_deg=segment[:, 2:4],
        end_deg=segment[:, 5:7],
        way=of_way,
        limit_mps=np.where(assumed, limits[:, 2:], limits[:, :2]),
        assumed=assumed,
        oneway=np.array(ways.oneway, bool),
        spot_deg=np.concatenate([nodes[on_road, 2:], stops]),
        spot_way=np.append(nodes[on_road, 0].astype(np.int64), np.full(len(stops), ANYWHERE)),
        spot_flags=np.concatenate([flags, np.tile([False, True, False], (len(stops), 1))]),
    )


def junctions(start: FloatArray, end: FloatArray) -> FloatArray:
    """Return nodes from which segments lead to at least three other nodes.

    >>> junctions(np.array([1, 2, 2, 2]), np.array([2, 3, 4, 4])).tolist()
    [2]
    """
    arms = np.stack([np.concatenate([start, end]), np.concatenate([end, start])], axis=1)
    node, count = np.unique(np.unique(arms, axis=0)[:, 0], return_counts=True)
    return np.asarray(node[count >= ARMS])
