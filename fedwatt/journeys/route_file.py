"""What a fleet or a vehicle knows about routes, as bytes: safetensors, and JSON in its head.

A fleet's are RUN/routes.safetensors; a vehicle's travel as text in its model file.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from fedwatt.data.trip import FloatArray
from fedwatt.errors import DataError
from fedwatt.journeys.driving_field import DrivingField, DrivingSums
from fedwatt.journeys.fleet_routes import JUDGED, FleetRoutes
from fedwatt.journeys.mixed_effects import FleetEffects
from fedwatt.journeys.route_bars import Bars
from fedwatt.journeys.route_board import TARGETS
from fedwatt.journeys.route_model import Coefficients, RouteModel
from fedwatt.terrain.grid import Grid

ROUTES_KEY = "fedwatt.routes"
"""Name of the text in a model file's metadata."""
FORMAT = 1
Arrays = dict[str, np.ndarray[Any, Any]]


def fleet_to_bytes(fleet: FleetRoutes) -> bytes:
    """The file of a fleet's routes."""
    arrays = _sums_to_arrays(fleet.driving) | {"correction": fleet.correction}
    for target in TARGETS:
        own = fleet.effects[target]
        arrays |= {f"{target}.{name}": getattr(own, name) for name in ("unit", "mean", "spread")}
        arrays[f"{target}.noise"] = np.array([own.noise])
        arrays |= {f"{target}.{name}": fleet.counts[target][name] for name in JUDGED}
    return _save(arrays, {"cell_m": fleet.cell_m, "vehicles": fleet.vehicles})


def fleet_from_bytes(content: bytes, where: str) -> FleetRoutes:
    """The fleet's routes in a file; `where` is named if it is damaged."""
    try:
        arrays, about = _load(content)
        effects = {
            target: FleetEffects(
                unit=arrays[f"{target}.unit"],
                mean=arrays[f"{target}.mean"],
                spread=arrays[f"{target}.spread"],
                noise=float(arrays[f"{target}.noise"][0]),
            )
            for target in TARGETS
        }
        counts = {
            target: {name: arrays[f"{target}.{name}"] for name in JUDGED} for target in TARGETS
        }
        driving, correction = _sums_from_arrays(arrays), arrays["correction"]
        cell_m, vehicles = float(about["cell_m"]), int(about["vehicles"])
    except (SafetensorError, KeyError, TypeError, ValueError) as problem:
        raise _damaged(where, problem) from problem
    return FleetRoutes(cell_m, driving, effects, counts, correction, vehicles)


NUMBERS = ("vehicle", "trips", "fleet_vehicles", "mass_kg", "capacity_wh")


def model_to_text(model: RouteModel) -> str:
    """A vehicle's routes as text for its model file, the driving field in float32."""
    arrays = _sums_to_arrays(model.field.cells) | {"correction": model.correction}
    arrays["sums"] = arrays["sums"].astype(np.float32)
    for target in TARGETS:
        own = model.coefficients[target]
        arrays[f"{target}.beta"] = own.beta
        arrays[f"{target}.scale"] = np.array([own.scale])
        bars = model.bars[target]
        arrays |= {f"{target}.{part.name}": getattr(bars, part.name) for part in fields(Bars)}
    about = {name: getattr(model, name) for name in NUMBERS}
    content = _save(arrays, about | {"cell_m": model.field.grid.cell_m})
    return b64encode(zlib.compress(content, 9)).decode("ascii")


def model_from_text(text: str, where: str) -> RouteModel:
    """The routes that a model file holds; `where` is named if they are damaged."""
    try:
        arrays, about = _load(zlib.decompress(b64decode(text, validate=True)))
        arrays["sums"] = arrays["sums"].astype(np.float64)
        field = DrivingField(Grid(cell_m=float(about["cell_m"])), _sums_from_arrays(arrays))
        coefficients = {
            target: Coefficients(arrays[f"{target}.beta"], float(arrays[f"{target}.scale"][0]))
            for target in TARGETS
        }
        bars = {
            target: Bars(*(arrays[f"{target}.{part.name}"] for part in fields(Bars)))
            for target in TARGETS
        }
        own = {name: about[name] for name in NUMBERS}
    except (SafetensorError, KeyError, TypeError, ValueError, zlib.error) as problem:
        raise _damaged(where, problem) from problem
    return RouteModel(
        **own,
        field=field,
        coefficients=coefficients,
        bars=bars,
        correction=arrays["correction"],
    )


def _sums_to_arrays(sums: DrivingSums) -> Arrays:
    return {"keys": sums.keys, "sums": sums.sums, "vehicles": sums.vehicles}


def _sums_from_arrays(arrays: Mapping[str, FloatArray]) -> DrivingSums:
    keys, vehicles = (arrays[name].astype(np.int64) for name in ("keys", "vehicles"))
    if (np.diff(keys) <= 0).any() or not np.isfinite(arrays["sums"]).all():
        raise ValueError("its cells are not in order")
    return DrivingSums(keys, arrays["sums"], vehicles)


def _save(arrays: Arrays, about: Mapping[str, Any]) -> bytes:
    whole = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    found: bytes = save(whole, {"fedwatt": json.dumps({"format": FORMAT, **about})})
    return found


def _load(content: bytes) -> tuple[Arrays, dict[str, Any]]:
    kinds = {"F64": np.float64, "F32": np.float32, "I64": np.int64}
    arrays = {
        name: np.frombuffer(part["data"], kinds[part["dtype"]]).reshape(part["shape"]).copy()
        for name, part in deserialize(content)  # type: ignore[no-untyped-call]
    }
    size = int.from_bytes(content[:8], "little")
    about = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["fedwatt"])
    if about["format"] != FORMAT:
        raise ValueError(f"format {about['format']} is not {FORMAT}")
    return arrays, about


def _damaged(where: str, problem: Exception) -> DataError:
    return DataError(f"{where} holds no routes that can be read: {problem}. Make it again.")
