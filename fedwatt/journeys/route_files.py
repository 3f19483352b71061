"""Routes as files: a fleet's in RUN/routes.json, a vehicle's as text in its model file.

Both are arrays in JSON, which numpy alone can read on board; those of a dataclass have the names of
its fields.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from fedwatt.elevation.elevation_map import ElevationMap, bare_map
from fedwatt.elevation.grid import Grid
from fedwatt.errors import DataError
from fedwatt.files import inflate, parse_json
from fedwatt.journeys.driving_field import DrivingField, DrivingSums, RoadClasses
from fedwatt.journeys.fleet_routes import CIRCUMSTANCES, FleetRoutes
from fedwatt.journeys.mixed_effects import FleetEffects
from fedwatt.journeys.route_intervals import Bars
from fedwatt.journeys.route_model import TARGETS, Coefficients, RouteModel

FORMAT = 3
MOST_BYTES = 128 << 20
"""Bytes to which the routes in a model file may unpack: those of about a million cells."""
MOST_BRACKETS = 10_000
"""Arrays and objects in that text, of which a file has a few dozen."""
KINDS: dict[np.dtype[Any], str] = {
    np.dtype("<f8"): "f8",
    np.dtype("<f4"): "f4",
    np.dtype("<i8"): "i8",
}
Arrays = dict[str, np.ndarray[Any, Any]]
Part = TypeVar("Part")
ROADS = "roads."
NUMBERS = ("vehicle", "trips", "fleet_vehicles", "mass_kg", "capacity_wh")


def fleet_to_bytes(fleet: FleetRoutes) -> bytes:
    """Return the file of a fleet's routes."""
    arrays = _named(fleet.driving)
    arrays |= {"correction": fleet.correction, "narrower": fleet.narrower}
    arrays |= _named_elevation(fleet.elevations) | _named_roads(fleet.roads)
    for target in TARGETS:
        arrays |= _named(fleet.effects[target], f"{target}.")
        arrays |= {f"{target}.{name}": fleet.counts[target][name] for name in CIRCUMSTANCES}
    facts = {
        "cell_m": fleet.grid.cell_m,
        "vehicles": fleet.vehicles,
        "insiders": sorted(fleet.insiders),
        "wh_per_km": fleet.wh_per_km,
    }
    return save_arrays(arrays, facts)


def fleet_from_bytes(content: bytes, where: str) -> FleetRoutes:
    """Return the fleet's routes in a file; `where` is named if it is damaged."""
    with _readable(where):
        arrays, facts = load_arrays(content)
        grid = Grid(cell_m=float(facts["cell_m"]))
        return FleetRoutes(
            grid=grid,
            driving=_driving(arrays),
            effects={target: _part(FleetEffects, arrays, f"{target}.") for target in TARGETS},
            counts={
                target: {name: arrays[f"{target}.{name}"] for name in CIRCUMSTANCES}
                for target in TARGETS
            },
            correction=arrays["correction"],
            narrower=arrays["narrower"],
            vehicles=int(facts["vehicles"]),
            insiders=frozenset(str(name) for name in facts["insiders"]),
            wh_per_km=float(facts["wh_per_km"]),
            elevations=_elevation(arrays, grid),
            roads=_roads(arrays),
        )


def model_to_text(model: RouteModel) -> str:
    """Return a vehicle's route model as text for its model file, sums in float32."""
    arrays = _named(model.field.cells)
    arrays |= {"correction": model.correction, "narrower": model.narrower}
    arrays["sums"] = arrays["sums"].astype(np.float32)
    for target in TARGETS:
        arrays |= _named(model.coefficients[target], f"{target}.")
        arrays |= _named(model.bars[target], f"{target}.")
    arrays |= _named_elevation(model.elevations) | _named_roads(model.field.roads)
    facts = {name: getattr(model, name) for name in NUMBERS}
    content = save_arrays(arrays, facts | {"cell_m": model.field.grid.cell_m})
    return b64encode(zlib.compress(content, 9)).decode("ascii")


def model_from_text(text: str, where: str) -> RouteModel:
    """Return the routes that a model file holds; `where` is named if they are damaged."""
    with _readable(where):
        arrays, facts = load_arrays(inflate(b64decode(text, validate=True), MOST_BYTES))
        grid = Grid(cell_m=float(facts["cell_m"]))
        return RouteModel(
            **{name: facts[name] for name in NUMBERS},
            field=DrivingField(grid, _driving(arrays), _roads(arrays)),
            coefficients={target: _part(Coefficients, arrays, f"{target}.") for target in TARGETS},
            bars={target: _part(Bars, arrays, f"{target}.") for target in TARGETS},
            correction=arrays["correction"],
            narrower=arrays["narrower"],
            elevations=_elevation(arrays, grid),
        )


def _named(part: Any, prefix: str = "") -> Arrays:
    """Return the arrays and numbers of a dataclass as arrays, named after its fields."""
    values = {prefix + member.name: getattr(part, member.name) for member in fields(part)}
    return {name: np.array([v]) if np.isscalar(v) else v for name, v in values.items()}


def _part(kind: type[Part], arrays: Arrays, prefix: str = "") -> Part:
    """Return the dataclass that `_named` took apart."""
    columns = {member: arrays[prefix + member.name] for member in fields(kind)}  # type: ignore[arg-type]
    return kind(
        **{member.name: float(v[0]) if member.type is float else v for member, v in columns.items()}
    )


def _driving(arrays: Arrays) -> DrivingSums:
    """Return the driving sums among named arrays; ValueError where they cannot be."""
    driving = _part(DrivingSums, arrays | {"sums": arrays["sums"].astype(np.float64)})
    if (np.diff(driving.keys) <= 0).any() or not np.isfinite(driving.sums).all():
        raise ValueError("its cells are not in order")
    return driving


def _named_elevation(elevations: ElevationMap | None) -> Arrays:
    """Return an elevation map as named arrays, elevations in float32; empty without a map."""
    if elevations is None:
        return {}
    heights = elevations.elevation_m.astype(np.float32)
    return {
        "hills.keys": elevations.keys,
        "hills.elevation_m": heights,
        "hills.region": elevations.region,
    }


def _elevation(arrays: Arrays, grid: Grid) -> ElevationMap | None:
    """Return the map that `_named_elevation` stored; elevation and driving share one grid."""
    if "hills.keys" not in arrays:
        return None
    heights = arrays["hills.elevation_m"].astype(np.float64)
    return bare_map(grid, arrays["hills.keys"], heights, arrays["hills.region"])


def _named_roads(roads: RoadClasses | None) -> Arrays:
    """Return sums by class of road as named arrays, in float32; none where there are none."""
    if roads is None:
        return {}
    arrays = _named(roads.sums, ROADS)
    return arrays | {f"{ROADS}sums": arrays[f"{ROADS}sums"].astype(np.float32)}


def _roads(arrays: Arrays) -> RoadClasses | None:
    """Return the sums by class that `_named_roads` stored."""
    prefixed = {name: array for name, array in arrays.items() if name.startswith(ROADS)}
    if not prefixed:
        return None
    named = {name.removeprefix(ROADS): array for name, array in prefixed.items()}
    return RoadClasses(_driving(named))


def save_arrays(arrays: Arrays, facts: Mapping[str, Any]) -> bytes:
    """Write arrays as JSON with the description `about`; reading needs numpy alone."""
    packed = {
        name: {
            "type": KINDS[values.dtype],
            "shape": values.shape,
            "data": b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii"),
        }
        for name, values in arrays.items()
    }
    return json.dumps({"format": FORMAT, "about": facts, "arrays": packed}).encode()


def load_arrays(content: bytes) -> tuple[Arrays, dict[str, Any]]:
    """Return the content that `save_arrays` wrote."""
    if content.count(b"[") + content.count(b"{") > MOST_BRACKETS:
        raise ValueError("it holds too many parts")
    entry = parse_json(content)
    if entry["format"] != FORMAT:
        raise ValueError(f"format {entry['format']} is not {FORMAT}")
    kinds: dict[str, Any] = {name: kind for kind, name in KINDS.items()}
    arrays = {
        name: np.frombuffer(b64decode(part["data"], validate=True), kinds[part["type"]])
        .reshape(part["shape"])
        .copy()
        for name, part in entry["arrays"].items()
    }
    return arrays, dict(entry["about"])


@contextmanager
def _readable(where: str) -> Iterator[None]:
    """Turn whatever damage does to reading into one sentence."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, zlib.error) as problem:
        raise DataError(
            f"{where} holds no routes that can be read: {problem}. Make it again."
        ) from problem
