"""A run on the machines of a Ray cluster: one task for each method.

A task trains a method with all its seeds in one stack and returns the checkpoint of its last round.
The run continues from there as if resumed: tables, personalised models and report are made on this
machine. A lost task starts again; RUN/cells/LABEL/ holds the finished one of LABEL.
"""

import json
import tempfile
from dataclasses import replace
from math import inf
from pathlib import Path

from fedwatt.errors import RunError
from fedwatt.files import write_text
from fedwatt.privacy import budget_for
from fedwatt.runs.config import RunConfig, from_toml, to_toml
from fedwatt.runs.folder import (
    CheckpointOrigin,
    load_checkpoint,
    run_hash,
    save_checkpoint,
    train_method,
)
from fedwatt.runs.observers import SILENT
from fedwatt.runs.provenance import provenance
from fedwatt.runs.simulation import federation_for
from fedwatt.runs.source import run_fleet
from fedwatt.tuning.grid import OnDone, run_cells
from fedwatt.windows import Fleet


def train_in_tasks(
    config: RunConfig, out: Path, fleet: Fleet, *, ray: str | None, on_done: OnDone | None = None
) -> None:
    """Train every method of `config` and leave its last checkpoint in the run folder `out`.

    `ray` is the address of a cluster; None: one task after the other, in this process. The results
    are bit-identical to those without tasks.
    """
    origin = CheckpointOrigin(run_hash(config), fleet.data_hash())
    tasks: dict[str, str] = {}
    for choice in config.methods:
        finished = load_checkpoint(out / "checkpoint" / choice.label, choice.label, origin)
        if not finished or (finished[0].round < config.training.rounds and finished[0].live):
            tasks[choice.label] = to_toml(replace(config, methods=(choice,)))
    paths = run_cells(
        tasks,
        train_task,
        out / "cells",
        # Every machine makes the vehicles of a lazy fleet by itself.
        shared=None if fleet.is_lazy else fleet,
        ray=ray,
        gpus=1 if config.device == "cuda" else 0,
        on_done=on_done,
    )
    for label, text in tasks.items():
        task_origin = CheckpointOrigin(run_hash(from_toml(text, trusted=True)), origin.data)
        checkpoint = load_checkpoint(paths[label], label, task_origin)
        if checkpoint is None:
            raise RunError(f"{paths[label]} holds no checkpoint. Delete it and resume.")
        save_checkpoint(out / "checkpoint" / label, *checkpoint, origin)


def train_task(text: str, fleet: Fleet | None, folder: Path) -> None:
    """Train the method of the configuration `text` (TOML) and leave its checkpoint in `folder`."""
    config = from_toml(text, trusted=True)
    fleet = fleet or run_fleet(config)
    (choice,) = config.methods
    origin = CheckpointOrigin(run_hash(config), fleet.data_hash())
    with tempfile.TemporaryDirectory(prefix="fedwatt-") as scratch:
        federation = federation_for(config, choice, fleet)
        budget = budget_for(choice.method, config.training, fleet)
        state, history = train_method(
            federation, choice, Path(scratch), SILENT, origin, inf, budget
        )
        # Client state serves later rounds only.
        save_checkpoint(folder, replace(state, client_state={}, events={}), history, origin)
    made = provenance(federation.device, deterministic=config.training.deterministic)
    write_text(folder / "environment.json", json.dumps(made))
