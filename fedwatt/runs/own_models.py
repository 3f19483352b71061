"""The models that vehicles made their own, one file each: nothing in it from another vehicle.

RUN/personal/LABEL/seed-1/VEHICLE.safetensors     tensors by name, as in model.safetensors

Of a run on a real fleet each vehicle has its own on its own disk, and the run folder has none.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fedwatt.data.store import folder_name
from fedwatt.errors import RunError
from fedwatt.federation import LocalFleet
from fedwatt.models import Layout
from fedwatt.personal import PersonalModel
from fedwatt.runs.model_file import flat
from fedwatt.runs.tensors import write_tensors

KEY = "fedwatt.personal"


def own_model_file(run: Path, label: str, seed: int, vehicle: str) -> Path:
    """Where a vehicle's own model is."""
    return run / "personal" / label / f"seed-{seed}" / f"{folder_name(vehicle)}.safetensors"


def own_model_writer(
    run: Path, label: str, federation: LocalFleet
) -> Callable[[PersonalModel], None]:
    """A function that writes each personal model as it is found."""

    def write(one: PersonalModel) -> None:
        name, seed = federation.fleet.clients[one.vehicle].name, federation.seeds[one.run]
        write_own_model(own_model_file(run, label, seed, name), federation, one)

    return write


def write_own_model(file: Path, federation: LocalFleet, one: PersonalModel) -> None:
    """A personal model as one file, whole or not there at all."""
    parts = federation.model.layout.split(one.weights)
    tensors = {part: values.contiguous().cpu() for part, values in parts.items()}
    name = federation.fleet.clients[one.vehicle].name
    about = {"vehicle": name, "rate": one.rate, "steps": one.steps}
    write_tensors(file, tensors, {KEY: json.dumps(about)})


def read_own_model(
    run: Path, label: str, seed: int, vehicle: str
) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a vehicle's own model, by name."""
    file = own_model_file(run, label, seed, vehicle)
    if not file.is_file():
        raise RunError(
            f"{run} has no personal model of '{vehicle}' for {label}, seed {seed}. Vehicles make "
            "theirs in a run with --personalise."
        )
    return read_own_file(file, vehicle)


def own_weights(file: Path, vehicle: str, layout: Layout) -> NDArray[Any]:
    """The model [D] that a vehicle made its own and kept in `file`; RunError if it is another."""
    return flat(read_own_file(file, vehicle), layout, file)


def read_own_file(file: Path, vehicle: str) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a vehicle's own model in `file`, by name; RunError if it is another's."""
    try:
        with safe_open(file, framework="numpy") as stored:
            owner = json.loads(stored.metadata()[KEY])["vehicle"]
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as problem:
        raise RunError(f"{file} is damaged: {problem}. Train the run again.") from problem
    if owner != vehicle:
        raise RunError(f"{file} is the model of vehicle '{owner}', not of '{vehicle}'.")
    return tensors
