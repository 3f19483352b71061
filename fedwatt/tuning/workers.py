"""A run on the machines of a Ray cluster: a method per task, or the vehicles of a round dealt out.

Tasks. A task is a method with all its seeds in one stack. It returns the checkpoint of its last
round, and the run goes on from there as if it had been resumed: tables, personalised models and
report are made here. A task that is lost begins anew, one that is finished is never repeated;
RUN/cells/LABEL/ holds the finished task of the method LABEL.

Workers. Each is a process with a core, or a GPU, that has the run's fleet (it maps, makes or was
sent it) and trains whatever share of a round it is given. One that dies costs the share that it was
training, which another takes, and a new one replaces it. Which worker had which share does not show
in the results (`federation.dealing`).
"""

import json
import logging
import os
import tempfile
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final

import torch

from fedwatt import plugins
from fedwatt.errors import FedwattError, RunError
from fedwatt.federation import Federation
from fedwatt.federation.dealing import (
    SHARES,
    RoundStart,
    Share,
    ShareResult,
    dealt_federation,
    train_share,
)
from fedwatt.federation.participation import participant_count
from fedwatt.files import write_text
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
from fedwatt.tuning.grid import RETRIES, OnDone, library, refuse_other_versions, run_cells, versions
from fedwatt.windows import Fleet


def train_in_tasks(
    config: RunConfig, out: Path, fleet: Fleet, *, ray: str | None, on_done: OnDone | None = None
) -> None:
    """Leave a finished checkpoint of every method of `config` in the run folder `out`.

    `ray` is the address of a cluster; None: one task after the other, in this process. The results
    are the same as without tasks, bit for bit.
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
        # A fleet on disk would not fit where it is sent: every machine opens it for itself.
        shared=None if fleet.mapped is not None or fleet.is_lazy else fleet,
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
    """Train the one method of the configuration `text` (TOML); its checkpoint goes to `folder`."""
    config = from_toml(text, trusted=True)
    if fleet is None:
        fleet = run_fleet(config)
    (choice,) = config.methods
    origin = CheckpointOrigin(run_hash(config), fleet.data_hash())
    with tempfile.TemporaryDirectory(prefix="fedwatt-") as scratch:
        federation = federation_for(config, choice, fleet, Path(scratch) / "memory")
        budget = budget_for(choice.method, config.training, fleet)
        state, history = train_method(
            federation, choice, Path(scratch), SILENT, origin, inf, budget
        )
        # Client state is of use to the next round alone, and there is none.
        save_checkpoint(folder, replace(state, memory={}, events={}), history, origin)
    made = provenance(federation.device, deterministic=config.training.deterministic)
    write_text(folder / "environment.json", json.dumps(made))


log = logging.getLogger("fedwatt.tuning")

FEWEST: Final = 8
"""Participants a worker and round below which dealing them out is not worth it."""


def deals_participants(config: RunConfig, vehicles: int, workers: int) -> bool:
    """Return whether a run should spread each training rather than train its methods side by side.

    It should where there are fewer tasks than workers and participants enough for all of these.
    """
    called = participant_count(vehicles, config.training.participation) * len(config.seeds)
    few_tasks = len(config.methods) < workers
    return not config.asynchronous.buffer and few_tasks and called >= FEWEST * workers


class RayWorker:
    """The object in a worker's process.

    Its constructor only keeps what it is given: to Ray, one that fails is a worker that was lost.
    """

    def __init__(
        self, config: str, fleet: Fleet | None, wanted: dict[str, str], user_code: dict[str, bytes]
    ) -> None:
        self.text = config
        self.sent = fleet
        self.wanted = wanted
        self.user_code = user_code

    def begin(self) -> int:
        """Return number of the worker's process, once it has all that it needs."""
        os.environ["OMP_NUM_THREADS"] = "1"
        torch.set_num_threads(1)
        plugins.carry(self.user_code)
        refuse_other_versions(self.wanted)
        self.config = from_toml(self.text, trusted=True)
        self.fleet = run_fleet(self.config) if self.sent is None else self.sent
        self.federations: dict[str, Federation] = {}
        return os.getpid()

    def train(self, label: str, start: RoundStart, share: Share) -> ShareResult:
        """Return a share of a round of the method `label`."""
        choice = next(own for own in self.config.methods if own.label == label)
        if label not in self.federations:
            self.federations = {label: federation_for(self.config, choice, self.fleet)}
        return train_share(self.federations[label], choice.method, start, share)


class RayWorkers:
    """One worker per core or GPU of the connected cluster."""

    def __init__(self, config: RunConfig, count: int | None = None) -> None:
        self.ray = library()
        self.config = config
        self.gpu = config.device == "cuda"
        self.count = min(count or cluster_size(config), SHARES)
        self.idle: deque[Any] = deque()
        self.busy: dict[Any, tuple[Any, int | None]] = {}
        """What is awaited -> (worker, its share's number or None: that it is there)."""
        self.begin: Any = None

    def federation(self, federation: Federation, choice: MethodChoice) -> Federation:
        """Return the federation with its participants dealt to the workers."""
        shares = self.count if self.gpu else SHARES
        return dealt_federation(federation, partial(self._deal, federation, choice.label), shares)

    def _deal(
        self, federation: Federation, label: str, start: RoundStart, shares: Sequence[Share]
    ) -> list[ShareResult]:
        if self.begin is None:
            self._begin(federation.fleet)
        common = self.ray.put(start)
        left = deque(range(len(shares)))
        found: dict[int, ShareResult] = {}
        tries: Counter[int] = Counter()
        while len(found) < len(shares):
            while left and self.idle:
                idle = self.idle.popleft()
                first = left.popleft()
                self.busy[idle.train.remote(label, common, shares[first])] = idle, first
            (done, *_), _ = self.ray.wait(list(self.busy), num_returns=1)
            worker, number = self.busy.pop(done)
            try:
                part = self.ray.get(done)
            except self.ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, FedwattError):
                    raise error.cause from error
                raise
            except self.ray.exceptions.RayError as error:
                self._replace(number, tries, error)
                if number is not None:
                    left.appendleft(number)
                continue
            self.idle.append(worker)
            if number is not None:
                found[number] = part
        return [found[number] for number in range(len(shares))]

    def _begin(self, fleet: Fleet) -> None:
        """Start all workers; a fleet in memory is sent once to each machine."""
        needs = {"num_cpus": 1, "num_gpus": 1 if self.gpu else 0}
        actor = self.ray.remote(max_restarts=0, **needs)(RayWorker)
        sent = None if fleet.mapped is not None or fleet.is_lazy else fleet
        terms = (to_toml(self.config), self.ray.put(sent), versions(), plugins.loaded_files())
        self.begin = lambda: actor.remote(*terms)
        for _ in range(self.count):
            self._add()

    def _add(self) -> None:
        worker = self.begin()
        self.busy[worker.begin.remote()] = worker, None

    def _replace(self, number: int | None, tries: Counter[int], error: Exception) -> None:
        """Put a new worker in the place of one that was lost, unless it keeps happening."""
        place = -1 if number is None else number
        tries[place] += 1
        reason = str(error).strip().splitlines()[0]
        if tries[place] > RETRIES:
            raise RunError(
                f"Workers of this training were lost {tries[place]} times at the same work: "
                f"{reason} Completed rounds are kept; continue with --resume."
            ) from error
        log.warning("A worker was lost (%s); its share of the round is dealt anew.", reason)
        self._add()


def cluster_size(config: RunConfig) -> int:
    """Count the workers that the cluster has room for."""
    found = library().cluster_resources()
    return max(1, int(found.get("GPU" if config.device == "cuda" else "CPU", 1)))
