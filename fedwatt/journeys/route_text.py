"""A vehicle's model of routes as text in its model file, which numpy alone can read on board."""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from fedwatt.data.trip import FloatArray
from fedwatt.errors import DataError
from fedwatt.journeys.driving_field import DrivingField, DrivingSums
from fedwatt.journeys.route_bars import Bars
from fedwatt.journeys.route_model import TARGETS, Coefficients, RouteModel
from fedwatt.terrain.field import Field
from fedwatt.terrain.grid import Grid

FORMAT = 3
KINDS: dict[np.dtype[Any], str] = {
    np.dtype("<f8"): "f8",
    np.dtype("<f4"): "f4",
    np.dtype("<i8"): "i8",
}
Arrays = dict[str, np.ndarray[Any, Any]]
NUMBERS = ("vehicle", "trips", "fleet_vehicles", "mass_kg", "capacity_wh")


def model_to_text(model: RouteModel) -> str:
    """A vehicle's routes as text for its model file, the driving field in float32."""
    arrays = sums_to_arrays(model.field.cells)
    arrays |= {"correction": model.correction, "narrower": model.narrower}
    arrays["sums"] = arrays["sums"].astype(np.float32)
    for target in TARGETS:
        own = model.coefficients[target]
        arrays[f"{target}.beta"] = own.beta
        arrays[f"{target}.scale"] = np.array([own.scale])
        bars = model.bars[target]
        arrays |= {f"{target}.{part.name}": getattr(bars, part.name) for part in fields(Bars)}
    arrays |= hills_to_arrays(model.hills)
    about = {name: getattr(model, name) for name in NUMBERS}
    content = save_arrays(arrays, about | {"cell_m": model.field.grid.cell_m})
    return b64encode(zlib.compress(content, 9)).decode("ascii")


def model_from_text(text: str, where: str) -> RouteModel:
    """The routes that a model file holds; `where` is named if they are damaged."""
    try:
        arrays, about = load_arrays(zlib.decompress(b64decode(text, validate=True)))
        arrays["sums"] = arrays["sums"].astype(np.float64)
        field = DrivingField(Grid(cell_m=float(about["cell_m"])), sums_from_arrays(arrays))
        coefficients = {
            target: Coefficients(arrays[f"{target}.beta"], float(arrays[f"{target}.scale"][0]))
            for target in TARGETS
        }
        bars = {
            target: Bars(*(arrays[f"{target}.{part.name}"] for part in fields(Bars)))
            for target in TARGETS
        }
        own = {name: about[name] for name in NUMBERS}
        correction, narrower = arrays["correction"], arrays["narrower"]
        hills = hills_from_arrays(arrays, field.grid)
    except (KeyError, TypeError, ValueError, AttributeError, zlib.error) as problem:
        raise damaged(where, problem) from problem
    return RouteModel(
        **own,
        field=field,
        coefficients=coefficients,
        bars=bars,
        correction=correction,
        narrower=narrower,
        hills=hills,
    )


def hills_to_arrays(hills: Field | None) -> Arrays:
    """Hills as named arrays, elevations in float32; none where there are none."""
    if hills is None:
        return {}
    heights = hills.elevation_m.astype(np.float32)
    return {"hills.keys": hills.keys, "hills.elevation_m": heights, "hills.region": hills.region}


def hills_from_arrays(arrays: Arrays, grid: Grid) -> Field | None:
    """What `hills_to_arrays` named; hills and driving have one grid."""
    if "hills.keys" not in arrays:
        return None
    keys, region = arrays["hills.keys"], arrays["hills.region"]
    unknown = np.zeros(len(keys))
    heights = arrays["hills.elevation_m"].astype(np.float64)
    return Field(grid, keys, heights, region, unknown, unknown.astype(np.int64))


def sums_to_arrays(sums: DrivingSums) -> Arrays:
    """Driving sums as named arrays."""
    return {"keys": sums.keys, "sums": sums.sums, "vehicles": sums.vehicles}


def sums_from_arrays(arrays: Mapping[str, FloatArray]) -> DrivingSums:
    """Driving sums that `sums_to_arrays` named; ValueError where they cannot be."""
    keys, vehicles = (arrays[name].astype(np.int64) for name in ("keys", "vehicles"))
    if (np.diff(keys) <= 0).any() or not np.isfinite(arrays["sums"]).all():
        raise ValueError("its cells are not in order")
    return DrivingSums(keys, arrays["sums"], vehicles)


def save_arrays(arrays: Arrays, about: Mapping[str, Any]) -> bytes:
    """Arrays as JSON, with `about` beside them; numpy alone reads it again."""
    packed = {
        name: {
            "type": KINDS[values.dtype],
            "shape": values.shape,
            "data": b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii"),
        }
        for name, values in arrays.items()
    }
    return json.dumps({"format": FORMAT, "about": about, "arrays": packed}).encode()


def load_arrays(content: bytes) -> tuple[Arrays, dict[str, Any]]:
    """What `save_arrays` wrote."""
    found = json.loads(content)
    if found["format"] != FORMAT:
        raise ValueError(f"format {found['format']} is not {FORMAT}")
    kinds: dict[str, Any] = {name: kind for kind, name in KINDS.items()}
    arrays = {
        name: np.frombuffer(b64decode(part["data"], validate=True), kinds[part["type"]])
        .reshape(part["shape"])
        .copy()
        for name, part in found["arrays"].items()
    }
    return arrays, dict(found["about"])


def damaged(where: str, problem: Exception) -> DataError:
    """The sentence for routes that cannot be read."""
    return DataError(f"{where} holds no routes that can be read: {problem}. Make it again.")
