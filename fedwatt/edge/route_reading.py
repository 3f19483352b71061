"""Read a planned route: GPX, GeoJSON, CSV of points, or the positions of a recorded trip.

Of a recorded trip only positions and the outside temperature are taken, nothing of how it went.
"""

import csv
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from fedwatt.edge.reading import read_trip
from fedwatt.errors import DataError
from fedwatt.files import parse_json
from fedwatt.journeys.route import Route, outside_c, recorded_route, route_of
from fedwatt.telemetry.channels import POSITION
from fedwatt.telemetry.recognise.header_words import fit
from fedwatt.telemetry.trip import FloatArray

POINTS = ("trkpt", "rtept")
LARGEST_BYTES = 500_000_000
Points = tuple[FloatArray, FloatArray]


def read_route(path: Path) -> tuple[Route, float | None]:
    """Return the route at `path`, and the outside temperature where a recorded trip knows it,
    °C.
    """
    readers = {".gpx": _gpx, ".geojson": _geojson, ".json": _geojson, ".csv": _csv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        trip, _ = read_trip(path)
        return recorded_route(trip)[0], outside_c(trip)
    if not path.is_file():
        raise DataError(f"There is no route '{path}'. Give a GPX, GeoJSON or CSV file.")
    if path.stat().st_size > LARGEST_BYTES:
        raise DataError(f"{path} is larger than {LARGEST_BYTES // 1_000_000} MB: no route is.")
    return route_of(path.stem, *reader(path)), None


def _gpx(path: Path) -> Points:
    """Points of all tracks of a GPX file, or else of its routes."""
    try:
        root = ElementTree.parse(path).getroot()
        for kind in POINTS:
            elements = [
                element for element in root.iter() if element.tag.rsplit("}", 1)[-1] == kind
            ]
            if elements:
                lat, lon = (
                    [float(element.attrib[name]) for element in elements] for name in ("lat", "lon")
                )
                return np.array(lat), np.array(lon)
    except (OSError, ElementTree.ParseError, KeyError, ValueError) as problem:
        raise DataError(f"{path} cannot be read as GPX: {problem}.") from problem
    raise DataError(f"{path} has neither a track nor a route: GPX keeps points in trkpt or rtept.")


def _geojson(path: Path) -> Points:
    """Points of the lines of a GeoJSON file, one after the other; longitude comes first in it."""
    try:
        lines = list(_lines(parse_json(path.read_text(encoding="utf-8"))))
        points = np.array([point[:2] for line in lines for point in line], dtype=np.float64)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise DataError(f"{path} cannot be read as GeoJSON: {problem}.") from problem
    if points.ndim != 2:
        raise DataError(f"{path} has no LineString: a route is one, or several in their order.")
    return points[:, 1], points[:, 0]


def _lines(part: Any) -> Any:
    """Coordinates of each line of a GeoJSON object."""
    kind = part["type"]
    if kind == "FeatureCollection":
        for feature in part["features"]:
            yield from _lines(feature)
    elif kind == "Feature":
        yield from _lines(part["geometry"])
    elif kind == "GeometryCollection":
        for geometry in part["geometries"]:
            yield from _lines(geometry)
    elif kind == "MultiLineString":
        yield from part["coordinates"]
    elif kind == "LineString":
        yield part["coordinates"]


def _csv(path: Path) -> Points:
    """Return the columns of a CSV file that are named like latitude and longitude."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            names = next(rows, [])
            places = [_column(names, channel, path) for channel in POSITION]
            cells = [[row[place] for place in places] for row in rows if row]
        points = np.array([[float(cell or "nan") for cell in row] for row in cells])
    except (OSError, UnicodeDecodeError, csv.Error, ValueError, IndexError) as problem:
        if isinstance(problem, DataError):
            raise
        raise DataError(f"{path} cannot be read as CSV of points: {problem}.") from problem
    points = points.reshape(len(cells), 2)
    return points[:, 0], points[:, 1]


def _column(names: list[str], channel: str, path: Path) -> int:
    fits = [fit(name, channel) for name in names]
    if not any(fits):
        word = channel.removesuffix("_deg")
        raise DataError(f"{path} has no column of {word}: its first line must name one.")
    return fits.index(max(fits))
