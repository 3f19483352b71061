"""A run on the machines of a Ray cluster: a method per task, or a share of a round per task.

Methods. A task trains a method with all its seeds in one stack and returns the checkpoint of its
last round. The run continues from there as if resumed: tables, personalised models and report are
made on this machine. A lost task starts again; RUN/cells/LABEL/ holds the finished one of LABEL.

Shares of rounds. Each worker process has a core or a GPU, and the run's fleet, which it was sent or
opens itself. Ray repeats the share of a lost worker in another one; results do not depend on which
worker trains which share (`federation.dealing`).
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import inf
from pathlib import Path
from typing import Any, Final

import torch

from fedwatt import plugins
from fedwatt.errors import RunError
from fedwatt.federation import Federation
from fedwatt.federation.dealing import (
    SHARES,
    Share,
    ShareResult,
    dealt_federation,
    train_share,
)
from fedwatt.federation.local_round import Broadcast
from fedwatt.federation.participation import participant_count
from fedwatt.files import write_text
from fedwatt.methods import Method
from fedwatt.privacy import budget_for
from fedwatt.runs.config import MethodChoice, RunConfig, from_toml, to_toml
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
from fedwatt.tuning.grid import (
    RETRIES,
    OnDone,
    library,
    refuse_other_versions,
    result_of,
    run_cells,
    versions,
)
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
        federation = federation_for(config, choice, fleet, Path(scratch) / "states")
        budget = budget_for(choice.method, config.training, fleet)
        state, history = train_method(
            federation, choice, Path(scratch), SILENT, origin, inf, budget
        )
        # Client state serves later rounds only.
        save_checkpoint(folder, replace(state, client_state={}, events={}), history, origin)
    made = provenance(federation.device, deterministic=config.training.deterministic)
    write_text(folder / "environment.json", json.dumps(made))


FEWEST: Final = 8
"""Participants per worker and round below which rounds are not dealt out."""


def deals_participants(config: RunConfig, vehicles: int, workers: int) -> bool:
    """Return whether a run should spread each training rather than train its methods side by side.

    It should where there are fewer tasks than workers and participants enough for all of these.
    """
    called = participant_count(vehicles, config.training.participation) * len(config.seeds)
    few_tasks = len(config.methods) < workers
    return not config.asynchronous.buffer and few_tasks and called >= FEWEST * workers


@lru_cache(maxsize=1)
def _fleet(text: str, sent: Any) -> Fleet:
    """Return the fleet of a configuration in a worker's process: the one `sent`, or opened here."""
    return run_fleet(from_toml(text, trusted=True)) if sent is None else library().get(sent)


@lru_cache(maxsize=1)
def _federation(text: str, label: str, sent: Any) -> tuple[Federation, Method]:
    """Return the federation of a method in a worker's process, for all rounds of the method."""
    torch.set_num_threads(1)
    config = from_toml(text, trusted=True)
    choice = next(choice for choice in config.methods if choice.label == label)
    return federation_for(config, choice, _fleet(text, sent)), choice.method


@dataclass(frozen=True)
class DealtTraining:
    """A method's training as every worker needs it; sent once per method."""

    text: str
    """The configuration, as TOML."""
    label: str
    fleet: Any
    """Ray's reference to the fleet; None: every worker opens it."""
    versions: dict[str, str]
    user_code: dict[str, bytes]

    def train(self, start: Broadcast, share: Share) -> ShareResult:
        """Train a share of a round in a worker's process."""
        plugins.carry(self.user_code)
        refuse_other_versions(self.versions)
        federation, method = _federation(self.text, self.label, self.fleet)
        return train_share(federation, method, start, share)


class RayWorkers:
    """The processes of the connected cluster, one per core or GPU, that train shares of rounds."""

    def __init__(self, config: RunConfig) -> None:
        self.ray = library()
        self.config = config
        self.on_gpu = config.device == "cuda"
        self.count = min(cluster_size(config), SHARES)
        # A worker keeps its fleet from task to task; on a GPU Ray would end it after each one.
        needs = {"num_cpus": 1, "num_gpus": int(self.on_gpu), "max_calls": 0}
        self.train = self.ray.remote(max_retries=RETRIES, **needs)(DealtTraining.train)

    def federation(self, federation: Federation, choice: MethodChoice) -> Federation:
        """Return the federation with its participants dealt to the workers."""
        fleet = federation.fleet
        sent = None if fleet.is_lazy else self.ray.put(fleet)
        training = DealtTraining(
            to_toml(self.config), choice.label, sent, versions(), plugins.loaded_files()
        )
        shares = self.count if self.on_gpu else SHARES
        return dealt_federation(federation, partial(self._deal, self.ray.put(training)), shares)

    def _deal(self, training: Any, start: Broadcast, shares: Sequence[Share]) -> list[ShareResult]:
        common = self.ray.put(start)
        tasks = [self.train.remote(training, common, share) for share in shares]
        results: list[ShareResult] = result_of(self.ray, tasks, "A round")
        return results


def cluster_size(config: RunConfig) -> int:
    """Return the number of workers that the cluster has room for."""
    resources = library().cluster_resources()
    return max(1, int(resources.get("GPU" if config.device == "cuda" else "CPU", 1)))
