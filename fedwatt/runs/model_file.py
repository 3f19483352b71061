"""The models of a run on disk: those of its methods, and the personalised ones of vehicles.

RUN/model.safetensors                             of all finished methods, and the configuration
    LABEL/final/seed-1/hidden1.weight              the final model: as a rule the mean of these two
    LABEL/best/seed-1/hidden1.weight              of the round with the lowest validation error
    LABEL/last/seed-1/hidden1.weight              of the last round
RUN/personalised/LABEL/seed-1/VEHICLE.safetensors nothing in it from another vehicle

Of a deployed run each vehicle has its personalised model on its own disk, and the run has none.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedwatt.errors import RunError
from fedwatt.evaluation import PersonalisedModel
from fedwatt.federation import Federation, History, Loop, State
from fedwatt.federation.records import Row
from fedwatt.federation.selection import GLOBAL_MODELS
from fedwatt.files import parse_json, write_atomically
from fedwatt.models.model import Layout
from fedwatt.runs.config import MethodChoice, RunConfig, from_toml, to_toml
from fedwatt.runs.provenance import changed_since, sentence
from fedwatt.runs.tables import write_table
from fedwatt.telemetry.store import folder_name

MODEL_FILE = "model.safetensors"
CONFIG = "fedwatt"
"""One entry: safetensors writes several in no fixed order, and equal runs make equal files."""
OWNER = "fedwatt.evaluation"
Parts = dict[str, NDArray[Any]]  # the tensors of a model by name


def model_prefix(label: str, which: str, seed: int) -> str:
    """Return the prefix of the names of a model's tensors.

    >>> model_prefix("fedavg", "final", 1)
    'fedavg/final/seed-1/'
    """
    return f"{label}/{which}/seed-{seed}/"


def write_models(run: Path, tensors: Mapping[str, Tensor], config: RunConfig) -> None:
    """Write all models of a run, each tensor under `model_prefix` and its name."""
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
    """Return one model's tensors by name; RunError if the run has not trained it."""
    prefix = model_prefix(label, which, seed)
    with _opened(run) as file:
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
        tensors = {name.removeprefix(prefix): file.get_tensor(name) for name in names}
    if not tensors:
        raise RunError(f"{run} has not trained '{label}' yet. Continue it with --resume.")
    return tensors


def final_weights(run: Path, label: str, seed: int, layout: Layout) -> NDArray[Any]:
    """Return the model [D] that the method `label` keeps in a finished run folder."""
    return flat(read_model(run, label, "final", seed), layout, run / MODEL_FILE)


def flat(parts: Mapping[str, NDArray[Any]], layout: Layout, file: Path | str) -> NDArray[Any]:
    """Return tensors as one vector [D]; RunError if they are not those of the network."""
    if {name: part.shape for name, part in parts.items()} != layout.shapes:
        raise RunError(f"{file} holds another network.")
    return np.concatenate([parts[name].reshape(-1) for name in layout.shapes])


@contextmanager
def _opened(run: Path) -> Iterator[Any]:
    path = run / MODEL_FILE
    if not path.is_file():
        raise RunError(
            f"{run} is not a finished run: it has no {MODEL_FILE}. Train one with 'fedwatt "
            "run', or continue an interrupted one with --resume."
        )
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except (OSError, SafetensorError, KeyError, TypeError) as problem:
        raise RunError(
            f"{path} is damaged: {problem}. Delete {run / 'environment.json'}: --resume then makes "
            "it again from the run's checkpoints."
        ) from problem


def personalised_file(run: Path, label: str, seed: int, vehicle: str) -> Path:
    """Return the path of a vehicle's personalised model."""
    return run / "personalised" / label / f"seed-{seed}" / f"{folder_name(vehicle)}.safetensors"


def write_personalised(file: Path, federation: Federation, personalised: PersonalisedModel) -> None:
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


def read_personalised(run: Path, label: str, seed: int, vehicle: str) -> Parts:
    """Return the model that a vehicle made its own in a run."""
    file = personalised_file(run, label, seed, vehicle)
    if not file.is_file():
        raise RunError(
            f"{run} has no personalised model of '{vehicle}' for {label}, seed {seed}. Vehicles "
            "make theirs in a run with --personalise, or by a method such as 'ditto'."
        )
    return read_personalised_file(file, vehicle)


def read_personalised_file(file: Path, vehicle: str) -> Parts:
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


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write named tensors to a safetensors file, atomically."""

    def write(file: Path) -> None:
        try:
            save_file(dict(tensors), file, metadata=dict(metadata or {}))
        except SafetensorError as error:  # its own word for a full disk
            raise OSError(str(error)) from error

    write_atomically(path, write)


@dataclass
class RunResults:
    """Results of the methods trained so far."""

    config: RunConfig
    out: Path
    histories: list[History] = field(default_factory=list)
    vehicles: list[Row] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    device: torch.device = field(init=False)  # on which the last method was trained

    def add(
        self,
        federation: Federation | Loop,
        choice: MethodChoice,
        state: State,
        history: History,
        evaluated: Mapping[str, Sequence[Row]],
    ) -> None:
        """Add a method and write all tables and models into the run folder.

        `evaluated` has error rows that exist already: those of "personalised" models, and those of
        the "final" one where vehicles do not use it for all windows.
        """
        self.histories.append(history)
        self.device = federation.device
        layout = federation.model.layout
        evaluated = dict(evaluated)
        for model, weights in state.models.items():
            if model not in evaluated:
                evaluated[model] = federation.vehicle_rows(weights)
            # A method's extra heads stay out.
            self.tensors |= {
                model_prefix(choice.label, model, seed) + name: part.contiguous().cpu()
                for seed, seed_weights in zip(federation.seeds, weights, strict=True)
                for name, part in layout.split(seed_weights[: layout.size]).items()
            }
        self.vehicles += [
            {"method": choice.label, "model": model} | row
            for model in ("personalised", *GLOBAL_MODELS)
            for row in evaluated.get(model, ())
        ]
        for name in ("rounds", "clients", "timing"):
            all_rows = [row for h in self.histories for row in getattr(h, name)]
            write_table(self.out, name, all_rows)
        write_table(self.out, "vehicles", self.vehicles)
        write_models(self.out, self.tensors, self.config)
