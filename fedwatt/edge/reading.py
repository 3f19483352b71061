"""Read what is to be predicted: a recorded or planned trip, or a route.

A trip is one of a vehicle's folder, or a CSV file with columns named as channels: a row for each
second, or rows at the times of its column `time_s`. Climb comes from the positions, as on a
recorded trip.

A route is a GPX, GeoJSON or CSV file of points, or a recorded trip, of which only positions,
measured elevation and the outside temperature are read. GPX and GeoJSON may have elevations.
"""

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from fedwatt.errors import DataError, unknown
from fedwatt.files import parse_json
from fedwatt.journeys.route import Route, outside_c, recorded_route, route_of
from fedwatt.telemetry.channels import CHANNELS, POSITION, STORED
from fedwatt.telemetry.cleaning.resample import resample
from fedwatt.telemetry.cleaning.segments import in_order
from fedwatt.telemetry.recognise.header_words import fit
from fedwatt.telemetry.trip import FloatArray, RawTrip, Trip, Vehicle
from fedwatt.windows.features import CLIMB, MAY_BE_UNKNOWN

TIME = "time_s"
SPEED = "speed_mps"
GPX_POINTS = ("trkpt", "rtept")
LARGEST_ROUTE_BYTES = 500_000_000
Points = tuple[FloatArray, FloatArray, FloatArray]
"""Latitudes, longitudes and elevations, NaN where a point has none."""


def read_trip(path: Path) -> tuple[Trip, Vehicle | None]:
    """Return the trip and its vehicle (None for a file).

    FOLDER/NAME is the trip NAME of the vehicle in FOLDER. A CSV file has one row a second, or rows
    at any times that its column `time_s` tells.
    """
    path = Path(path)
    if path.is_file():
        trip = _from_csv(path)
        # A plan seldom says: unknown, as devices that a recording never reports.
        unknown_w = {name: np.full(trip.seconds, np.nan) for name in MAY_BE_UNKNOWN}
        return replace(trip, channels={**unknown_w, **trip.channels}), None
    if (path.parent / "vehicle.json").is_file():
        from fedwatt.telemetry.store import read_vehicle

        vehicle = read_vehicle(path.parent)
        trips = {trip.name: trip for trip in vehicle.trips}
        if path.name not in trips:
            raise DataError(
                f"Vehicle '{vehicle.name}': "
                + unknown("trip", path.name, trips, f"It has {len(trips)}, such as {min(trips)}.")
            )
        return trips[path.name], vehicle
    if (path / "vehicle.json").is_file():
        raise DataError(f"{path} is a vehicle. Name one of its trips as well: {path}/TRIP.")
    raise DataError(
        f"There is no trip '{path}'. Give VEHICLE_FOLDER/TRIP of a fleet, or a CSV file."
    )


def _from_csv(path: Path) -> Trip:
    columns = _columns(path)
    if SPEED not in columns:
        raise DataError(f"{path} has no column {SPEED}, without which there is no trip.")
    time_s = columns.pop(TIME, None)
    if time_s is None:
        return Trip(path.stem, columns)
    for name in (*CLIMB, "climb_known"):
        if name in columns:
            raise DataError(
                f"{path} has columns {TIME} and {name}, and climb is a sum over each second, which "
                f"cannot be read at other times. Leave {TIME} out if rows are a second apart, or "
                "give positions or elevation_m."
            )
    parts, _ = in_order(RawTrip(path.stem, time_s, columns))
    if len(parts) != 1:
        raise DataError(f"{path}: the clock in {TIME} is set back. Give one trip a file.")
    return Trip(path.stem, resample(parts[0]))


def _columns(path: Path) -> dict[str, FloatArray]:
    column_names = (TIME, *STORED)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise DataError(f"{path} cannot be read as CSV: {problem}.") from problem
    if len(rows) < 2:
        raise DataError(f"{path} is empty: a trip needs a line of column names and rows below it.")
    names = [name.strip() for name in rows[0]]
    for name in names:
        if name not in column_names:
            raise DataError(f"{path}: {unknown('column', name, column_names)}")
    values = np.empty((len(rows) - 1, len(names)))
    for place, row in enumerate(rows[1:]):
        try:
            values[place] = [float(cell) if cell.strip() else np.nan for cell in row]
        except ValueError as problem:
            raise DataError(
                f"{path}, line {place + 2} does not hold {len(names)} numbers: {','.join(row)!r}."
            ) from problem
    columns = {name: values[:, column] for column, name in enumerate(names)}
    for name in names:
        _refuse_beyond_limits(path, name, columns[name])
    return columns


def _refuse_beyond_limits(path: Path, name: str, values: FloatArray) -> None:
    if name == TIME:
        return
    limits = CHANNELS[name]
    wrong = (values < limits.low) | (values > limits.high)
    if wrong.any():
        place = int(np.argmax(wrong))
        raise DataError(
            f"{path}, line {place + 2}: {name} is {values[place]:g} {limits.unit}, and can only be "
            f"{limits.low:g} to {limits.high:g}. Correct it or its unit, or leave the cell empty."
        )


def read_route(path: Path) -> tuple[Route, float | None]:
    """Return the route at `path`, and the outside temperature in °C if it is a recorded trip."""
    readers = {".gpx": _gpx, ".geojson": _geojson, ".json": _geojson, ".csv": _csv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        trip, _ = read_trip(path)
        return recorded_route(trip)[0], outside_c(trip)
    if not path.is_file():
        raise DataError(f"There is no route '{path}'. Give a GPX, GeoJSON or CSV file.")
    if path.stat().st_size > LARGEST_ROUTE_BYTES:
        raise DataError(
            f"{path} is larger than {LARGEST_ROUTE_BYTES // 1_000_000} MB: no route is."
        )
    return route_of(path.stem, *reader(path)), None


def gpx_points(text: str | bytes, where: str) -> Points:
    """Return the points of all tracks of a GPX text, or else of its routes."""
    try:
        root = ElementTree.fromstring(text)
        for kind in GPX_POINTS:
            points = [element for element in root.iter() if _plain_tag(element) == kind]
            if points:
                rows = [
                    (float(point.attrib["lat"]), float(point.attrib["lon"]), _gpx_elevation(point))
                    for point in points
                ]
                return _columns_of(rows)
    except (ElementTree.ParseError, KeyError, ValueError) as problem:
        raise DataError(f"{where} cannot be read as GPX: {problem}.") from problem
    raise DataError(f"{where} has neither a track nor a route: GPX keeps points in trkpt or rtept.")


def _plain_tag(element: ElementTree.Element) -> str:
    """Return the tag without its namespace."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _gpx_elevation(point: ElementTree.Element) -> float:
    """Return the elevation of a point; NaN where it has none."""
    texts = [child.text for child in point if _plain_tag(child) == "ele"]
    return float(texts[0]) if texts and texts[0] else np.nan


def _columns_of(rows: Sequence[tuple[float, float, float]]) -> Points:
    table = np.array(rows, dtype=np.float64)
    return table[:, 0], table[:, 1], table[:, 2]


def _gpx(path: Path) -> Points:
    try:
        return gpx_points(path.read_bytes(), str(path))
    except OSError as problem:
        raise DataError(f"{path} cannot be read as GPX: {problem}.") from problem


def _geojson(path: Path) -> Points:
    """Return the points of the lines of a GeoJSON file in their order; longitude comes first."""
    try:
        lines = list(_lines(parse_json(path.read_text(encoding="utf-8"))))
        rows = [(*point, np.nan)[:3] for line in lines for point in line]
        points = np.array(rows, dtype=np.float64)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise DataError(f"{path} cannot be read as GeoJSON: {problem}.") from problem
    if points.ndim != 2:
        raise DataError(f"{path} has no LineString: a route is one, or several in their order.")
    return points[:, 1], points[:, 0], points[:, 2]


def _lines(part: Any) -> Any:
    """Yield the coordinates of each line of a GeoJSON object."""
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
    return points[:, 0], points[:, 1], np.full(len(cells), np.nan)


def _column(names: list[str], channel: str, path: Path) -> int:
    fits = [fit(name, channel) for name in names]
    if not any(fits):
        word = channel.removesuffix("_deg")
        raise DataError(f"{path} has no column of {word}: its first line must name one.")
    return fits.index(max(fits))
