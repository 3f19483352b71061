"""The models of a run on disk: those of its methods, and those that vehicles made their own.

RUN/model.safetensors                             of all finished methods, and the configuration
    LABEL/kept/seed-1/hidden1.weight              what vehicles use: as a rule the mean of these two
    LABEL/best/seed-1/hidden1.weight              of the round with the lowest validation error
    LABEL/last/seed-1/hidden1.weight              of the last round
RUN/personalised/LABEL/seed-1/VEHICLE.safetensors     nothing in it from another vehicle

Of a run on a real fleet each vehicle has its own model on its own disk, and the run has none.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedwatt.errors import RunError
from fedwatt.evaluation import PersonalisedModel
from fedwatt.federation import LocalFleet
from fedwatt.files import parse_json
from fedwatt.models.layout import Layout
from fedwatt.runs.config import RunConfig, from_toml, to_toml
from fedwatt.runs.tensors import write_tensors
from fedwatt.runs.user_code import changed_since, sentence
from fedwatt.telemetry.store import folder_name

MODEL_FILE: Final = "model.safetensors"
CONFIG: Final = "fedwatt"
"""One entry: safetensors writes several in no fixed order, and equal runs make equal files."""
OWNER: Final = "fedwatt.evaluation"
Parts = dict[str, NDArray[Any]]  # the tensors of a model by name


def model_prefix(label: str, which: str, seed: int) -> str:
    """Return the prefix of the names of a model's tensors.

    >>> model_prefix("fedavg", "kept", 1)
    'fedavg/kept/seed-1/'
    """
    return f"{label}/{which}/seed-{seed}/"


def write_models(run: Path, tensors: Mapping[str, Tensor], config: RunConfig) -> None:
    """All models of a run, each tensor under `model_prefix` and its own name."""
    write_tensors(run / MODEL_FILE, dict(tensors), {CONFIG: to_toml(config)})


def read_model_config(run: Path) -> RunConfig:
    """Return the configuration that the models of a run were trained with.

    RunError if the code of their network or features is another now: they would predict otherwise.
    """
    with _opened(run) as file:
        text = file.metadata()[CONFIG]
    config = from_toml(text, str(run / MODEL_FILE))
    changed = changed_since(text, config.plugins)
    changed.pop("methods", None)  # has done its work
    if changed:
        since = sentence(changed, f"the models in {run} were trained")
        raise RunError(f"{since} They belong to the code as it was: put it back, or train anew.")
    return config


def read_model(run: Path, label: str, which: str, seed: int) -> Parts:
    """One model's tensors by name; RunError if the run has not trained it."""
    prefix = model_prefix(label, which, seed)
    with _opened(run) as file:
        names = list(file.keys())
        tensors = {
            n.removeprefix(prefix): file.get_tensor(n) for n in names if n.startswith(prefix)
        }
    if tensors:
        return tensors
    if any(name.startswith(f"{label}/") for name in names):
        raise RunError(
            f"{run} has no model '{which}' of '{label}', seed {seed}: an earlier version of "
            "fedwatt trained it, which left 'best' and 'last'. Ask for one of these."
        )
    raise RunError(f"{run} has not trained '{label}' yet. Go on with it with --resume.")


def final_weights(run: Path, label: str, seed: int, layout: Layout) -> NDArray[Any]:
    """Return the model [D] that the method `label` keeps in a finished run folder."""
    return flat(read_model(run, label, "kept", seed), layout, run / MODEL_FILE)


def flat(parts: Mapping[str, NDArray[Any]], layout: Layout, file: Path | str) -> NDArray[Any]:
    """Tensors by name as one vector [D]; RunError if they are not those of the network."""
    if {name: part.shape for name, part in parts.items()} != layout.shapes:
        raise RunError(f"{file} holds another network.")
    return np.concatenate([parts[name].reshape(-1) for name in layout.shapes])


@contextmanager
def _opened(run: Path) -> Iterator[Any]:
    path = run / MODEL_FILE
    if not path.is_file():
        raise RunError(
            f"{run} is not a finished run: it has no {MODEL_FILE}. Train one with 'fedwatt "
            "run', or go on with an interrupted one with --resume."
        )
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except (OSError, SafetensorError, KeyError, TypeError) as problem:
        raise RunError(
            f"{path} is damaged: {problem}. Delete {run / 'environment.json'}: --resume then makes "
            "it again from the run's checkpoints."
        ) from problem


def own_model_file(run: Path, label: str, seed: int, vehicle: str) -> Path:
    """Return the path of a vehicle's personalised model."""
    return run / "personalised" / label / f"seed-{seed}" / f"{folder_name(vehicle)}.safetensors"


def write_own_model(file: Path, federation: LocalFleet, personalised: PersonalisedModel) -> None:
    """Write a personalised model to one file, atomically."""
    parts = federation.model.layout.split(personalised.weights)
    tensors = {part: values.contiguous().cpu() for part, values in parts.items()}
    name = federation.fleet.clients[personalised.vehicle].name
    metadata = {
        "vehicle": name,
        "learning_rate": personalised.learning_rate,
        "steps": personalised.steps,
    }
    write_tensors(file, tensors, {OWNER: json.dumps(metadata)})


def read_own_model(run: Path, label: str, seed: int, vehicle: str) -> Parts:
    """Return the model that a vehicle made its own in a run."""
    file = own_model_file(run, label, seed, vehicle)
    if not file.is_file():
        raise RunError(
            f"{run} has no personalised model of '{vehicle}' for {label}, seed {seed}. Vehicles "
            "make theirs in a run with --personalise, or by a method such as 'ditto'."
        )
    return read_own_file(file, vehicle)


def own_weights(file: Path, vehicle: str, layout: Layout) -> NDArray[Any]:
    """Return the model [D] that a vehicle made its own and kept in `file`; RunError if it is
    another.
    """
    return flat(read_own_file(file, vehicle), layout, file)


def read_own_file(file: Path, vehicle: str) -> Parts:
    """Return the model that a vehicle made its own, in `file`; RunError if it is another's."""
    try:
        with safe_open(file, framework="numpy") as stored:
            owner = parse_json(stored.metadata()[OWNER])["vehicle"]
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as problem:
        raise RunError(f"{file} is damaged: {problem}. Train the run again.") from problem
    if owner != vehicle:
        raise RunError(f"{file} is the model of vehicle '{owner}', not of '{vehicle}'.")
    return tensors
