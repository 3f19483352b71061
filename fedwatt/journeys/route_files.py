"""Routes as files: a fleet's in RUN/routes.json, a vehicle's as text in its model file.

Both are dataclasses as JSON, arrays in base64, which numpy alone can read in the vehicle.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fedwatt.elevation.elevation_map import ElevationMap, bare_map
from fedwatt.errors import DataError
from fedwatt.files import inflate, parse_json
from fedwatt.journeys.driving_field import DrivingSums
from fedwatt.journeys.fleet_routes import FleetRoutes
from fedwatt.journeys.route_model import RouteModel

FORMAT = 4
MOST_BYTES = 128 << 20
"""Bytes to which the routes in a model file may unpack: those of about a million cells."""
MOST_BRACKETS = 10_000
"""Arrays and objects in that text, of which a file has a few dozen."""
KINDS: dict[np.dtype[Any], str] = {
    np.dtype("<f8"): "f8",
    np.dtype("<f4"): "f4",
    np.dtype("<i8"): "i8",
}
LARGE = 1000
"""Numbers from which a vehicle's model file keeps an array in float32."""
Arrays = Mapping[str, NDArray[Any]]


def fleet_to_bytes(fleet: FleetRoutes) -> bytes:
    """Return the file of a fleet's routes."""
    return to_bytes(replace(fleet, elevations=_bare(fleet.elevations)))


def fleet_from_bytes(content: bytes, where: str) -> FleetRoutes:
    """Return the fleet's routes in a file; `where` is named if it is damaged."""
    with _readable(where):
        fleet: FleetRoutes = from_bytes(FleetRoutes, content)
        return fleet


def model_to_text(model: RouteModel) -> str:
    """Return a vehicle's route model as text for its model file, large arrays in float32."""
    content = to_bytes(replace(model, elevations=_bare(model.elevations)), large="<f4")
    return b64encode(zlib.compress(content, 9)).decode("ascii")


def model_from_text(text: str, where: str) -> RouteModel:
    """Return the routes that a model file holds; `where` is named if they are damaged."""
    with _readable(where):
        content = inflate(b64decode(text, validate=True), MOST_BYTES)
        model: RouteModel = from_bytes(RouteModel, content)
        return model


def _bare(elevations: ElevationMap | None) -> ElevationMap | None:
    """Return a map without counts of vehicles and passes."""
    if elevations is None:
        return None
    return bare_map(elevations.grid, elevations.keys, elevations.elevation_m, elevations.region)


def to_bytes(value: Any, large: str = "<f8") -> bytes:
    """Return a dataclass or named arrays as JSON; floats of large arrays are of type `large`."""
    return json.dumps({"format": FORMAT, "value": _plain(value, large)}).encode()


def from_bytes(kind: Any, content: bytes) -> Any:
    """Return the value of a type, such as FleetRoutes, that `to_bytes` wrote."""
    if content.count(b"[") + content.count(b"{") > MOST_BRACKETS:
        raise ValueError("it holds too many parts")
    entry = parse_json(content)
    if entry["format"] != FORMAT:
        raise ValueError(f"format {entry['format']} is not {FORMAT}")
    return _typed(kind, entry["value"])


def _plain(value: Any, large: str) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, np.ndarray):
        if value.size >= LARGE and value.dtype.kind == "f":
            value = value.astype(large)
        data = b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii")
        return {"type": KINDS[value.dtype], "shape": value.shape, "data": data}
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name), large) for part in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(part, large) for name, part in value.items()}
    return sorted(value) if isinstance(value, frozenset) else value


def _typed(kind: Any, entry: Any) -> Any:
    """Return the value of a type that `_plain` took apart."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin is UnionType:
        return None if entry is None else _typed(arguments[0], entry)
    if origin is np.ndarray:
        return _array(entry)
    if origin is Mapping:
        return {str(name): _typed(arguments[1], part) for name, part in entry.items()}
    if not is_dataclass(kind):
        return (origin or kind)(entry)
    hints = get_type_hints(kind)
    parts = {part.name: _typed(hints[part.name], entry[part.name]) for part in fields(kind)}
    made: Any = kind
    value = made(**parts)
    if isinstance(value, DrivingSums):
        ascending = (np.diff(value.keys) > 0).all()
        if not ascending or not np.isfinite(value.sums).all():
            raise ValueError("its cells are not in order")
    return value


def _array(entry: Mapping[str, Any]) -> NDArray[Any]:
    """Return an array, float64 or int64."""
    kinds = {name: kind for kind, name in KINDS.items()}
    stored = np.frombuffer(b64decode(entry["data"], validate=True), kinds[entry["type"]])
    wide = np.int64 if stored.dtype.kind == "i" else np.float64
    return stored.reshape(entry["shape"]).astype(wide)


@contextmanager
def _readable(where: str) -> Iterator[None]:
    """Turn whatever damage does to reading into one sentence."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, zlib.error) as problem:
        raise DataError(
            f"{where} holds no routes that can be read: {problem}. Make it again."
        ) from problem
