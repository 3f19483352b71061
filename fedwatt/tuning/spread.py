"""The methods of a run on the machines of a Ray cluster.

A task is a method with all its seeds in one stack, or with some of them. It hands back the
checkpoint of its last round; those of a method are put together to the checkpoint that the same
method would have left in this process, and the run goes on from there as if it had been resumed:
tables, personalised models and report are made here. A task that is lost begins anew, one that is
finished is never repeated.

RUN/cells/1x3-LABEL/    a finished task: three seeds from 1 on of the method LABEL
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import torch

from fedwatt.errors import RunError
from fedwatt.federation import History, State
from fedwatt.federation.records import Row
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
    config: RunConfig,
    out: Path,
    fleet: Fleet,
    *,
    ray: str | None,
    seeds_per_task: int = 0,
    on_done: OnDone | None = None,
) -> None:
    """Leave a finished checkpoint of every method of `config` in the run folder `out`.

    `ray` is the address of a cluster; None: one task after the other, in this process. With
    `seeds_per_task` 0 all seeds of a method are one stack, as without tasks, and the results are
    the same, bit for bit; smaller stacks are rounded otherwise.
    """
    origin = CheckpointOrigin(run_hash(config), fleet.data_hash())
    shares: dict[str, list[tuple[str, str]]] = {}
    for choice in config.methods:
        known = load_checkpoint(out / "checkpoint" / choice.label, choice.label, origin)
        if known and (known[0].round >= config.training.rounds or known[0].diverged.all()):
            continue
        shares[choice.label] = []
        for seeds in chunks(config.seeds, seeds_per_task):
            share = to_toml(replace(config, methods=(choice,), seeds=seeds))
            shares[choice.label].append((f"{seeds[0]}x{len(seeds)}-{choice.label}", share))
    paths = run_cells(
        dict(cell for own in shares.values() for cell in own),
        train_share,
        out / "cells",
        # A fleet on disk would not fit where it is sent: every machine opens it for itself.
        shared=None if fleet.mapped is not None or fleet.is_lazy else fleet,
        ray=ray,
        gpus=1 if config.device == "cuda" else 0,
        on_done=on_done,
    )
    for label, own in shares.items():
        found = []
        for name, share in own:
            own_origin = CheckpointOrigin(run_hash(from_toml(share, trusted=True)), origin.data)
            one = load_checkpoint(paths[name], label, own_origin)
            if one is None:
                raise RunError(f"{paths[name]} holds no checkpoint. Delete it and resume.")
            found.append(one)
        state = joined_states([state for state, _ in found])
        history = joined_histories([history for _, history in found], config.seeds)
        save_checkpoint(out / "checkpoint" / label, state, history, origin)


def train_share(share: str, fleet: Fleet | None, folder: Path) -> None:
    """Train the one method of the configuration `share` (TOML); its checkpoint goes to `folder`."""
    config = from_toml(share, trusted=True)
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
        # What vehicles remember is of use to the next round alone, and there is none.
        save_checkpoint(folder, replace(state, memory={}, events={}), history, origin)
    made = provenance(federation.device, deterministic=config.training.deterministic)
    write_text(folder / "environment.json", json.dumps(made))


def chunks(seeds: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Seeds in groups of `size`, the last one perhaps smaller; 0: one group.

    >>> chunks((1, 2, 3), 2), chunks((1, 2, 3), 0)
    ([(1, 2), (3,)], [(1, 2, 3)])
    """
    size = size or len(seeds)
    return [tuple(seeds[first : first + size]) for first in range(0, len(seeds), size)]


def joined_states(states: Sequence[State]) -> State:
    """Return the state of all runs from those of some each, all finished."""
    tensors = [state.tensors() for state in states]
    together = {name: torch.cat([own[name] for own in tensors]) for name in tensors[0]}
    # Runs that diverged may have ended earlier; the others did all rounds.
    return State.from_tensors(max(state.round for state in states), together)


def joined_histories(histories: Sequence[History], seeds: Sequence[int]) -> History:
    """Return the tables of all seeds from those of some each, in the order of a common stack."""
    position = {seed: place for place, seed in enumerate(seeds)}

    def order(row: Row) -> tuple[int, int]:
        return row["round"], position[row["seed"]]

    timing: dict[int, Row] = {}
    for row in (row for history in histories for row in history.timing):
        before = timing.setdefault(row["round"], {n: v for n, v in row.items() if n == "method"})
        added = {n: before.get(n, 0) + v for n, v in row.items() if n not in ("method", "round")}
        timing[row["round"]] = before | {"round": row["round"]} | added
    return History(
        histories[0].method,
        sorted((row for history in histories for row in history.rounds), key=order),
        sorted((row for history in histories for row in history.clients), key=order),
        [timing[number] for number in sorted(timing)],
    )
