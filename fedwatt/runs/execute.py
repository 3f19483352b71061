"""Carry out a configuration: train its methods one after the other into a run folder."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from torch import Tensor

from fedwatt.errors import RunError
from fedwatt.federation import Federation, History, RoundRecord, State
from fedwatt.federation.records import Row
from fedwatt.fleet import Fleet
from fedwatt.models import get_model
from fedwatt.runs.checkpoint import load_checkpoint, save_checkpoint
from fedwatt.runs.config import MethodChoice, RunConfig, from_toml, to_toml
from fedwatt.runs.environment import (
    describe_environment,
    describe_fleet,
    fleet_hashes,
    hash_of,
    participation_hashes,
)
from fedwatt.runs.files import write_tensors, write_text
from fedwatt.runs.source import open_fleet
from fedwatt.runs.tables import write_table


class Observer(Protocol):
    """Whoever wants to follow a run while it goes on."""

    def fleet_ready(self, fleet: Fleet) -> None:
        """The vehicles are loaded."""

    def method_begins(self, label: str, done: int, rounds: int) -> None:
        """A method starts, or goes on after `done` rounds."""

    def round_done(self, label: str, state: State, record: RoundRecord) -> None:
        """A round of a method is over."""

    def method_ends(self, label: str, history: History) -> None:
        """A method has done all it will do."""


def execute(
    config: RunConfig,
    out: Path,
    observer: Observer,
    *,
    resume: bool = False,
    checkpoint_seconds: float = 10.0,
) -> None:
    """Train every method of `config` and fill the run folder `out`.

    With `resume`, what an interrupted run of the same configuration left is continued, bit for bit.
    A checkpoint is written at most every `checkpoint_seconds` and whenever training stops.
    """
    started = datetime.now(UTC)
    claim(config, out, resume)
    fleet = open_fleet(config.fleet, config.data)
    observer.fleet_ready(fleet)
    histories, states = [], []
    for choice in config.methods:
        federation = federation_for(config, choice, fleet)
        folder = out / "checkpoint" / choice.label
        state, history = _train(
            federation, choice, folder, observer, run_hash(config), checkpoint_seconds
        )
        histories.append(history)
        states.append(state)
        _write_results(config, out, fleet, histories, states)
    hashes = fleet_hashes(fleet) | {
        "participation": {h.method: participation_hashes(h.clients) for h in histories}
    }
    environment = describe_environment(federation.device) | {
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seeds": list(config.seeds),
        "hashes": hashes,
        "fleet": describe_fleet(fleet),
    }
    write_text(out / "environment.json", json.dumps(environment, indent=2))


def claim(config: RunConfig, out: Path, resume: bool) -> None:
    """Make `out` the folder of this configuration, or refuse."""
    path = out / "config.toml"
    if path.exists():
        if not resume:
            raise RunError(
                f"{out} already holds a run. Continue it with --resume, or choose another --out."
            )
        if run_hash(from_toml(path.read_text(encoding="utf-8"), str(path))) != run_hash(config):
            raise RunError(
                f"{out} holds a run with another configuration. Resume with its own config.toml, "
                "or choose another --out."
            )
    write_text(path, to_toml(config))


def run_hash(config: RunConfig) -> str:
    """Hash of all that determines the numbers of a run."""
    return hash_of([to_toml(config)])


def federation_for(config: RunConfig, choice: MethodChoice, fleet: Fleet) -> Federation:
    """The federation in which a method of the run trains."""
    model = get_model(
        config.model.name,
        window=fleet.window,
        features=len(fleet.features),
        hidden=config.model.hidden,
    )
    return Federation(
        fleet,
        model,
        training=choice.training(config.training),
        availability=config.availability,
        seeds=config.seeds,
        device=config.device,
    )


def _train(
    federation: Federation,
    choice: MethodChoice,
    folder: Path,
    observer: Observer,
    config_hash: str,
    checkpoint_seconds: float,
) -> tuple[State, History]:
    seeds = len(federation.seeds)
    found = load_checkpoint(folder, choice.label, config_hash)
    if found is None:
        state, record = federation.start(choice.method)
        history = History(choice.label)
        history.add(0, seeds, record)
    else:
        state, history = found
        state = state.to(federation.device)
    observer.method_begins(choice.label, state.round, federation.training.rounds)
    saved, saved_at = (state.round if found else -1), time.monotonic()
    try:
        while not federation.finished(state):
            state, record = federation.advance(choice.method, state)
            history.add(state.round, seeds, record)
            observer.round_done(choice.label, state, record)
            if time.monotonic() - saved_at >= checkpoint_seconds:
                save_checkpoint(folder, state, history, config_hash)
                saved, saved_at = state.round, time.monotonic()
    finally:
        # Reached on Ctrl-C as well: `state` and `history` hold completed rounds only.
        if saved != state.round and history.timing[-1]["round"] == state.round:
            save_checkpoint(folder, state, history, config_hash)
    observer.method_ends(choice.label, history)
    return state, history


def _write_results(
    config: RunConfig,
    out: Path,
    fleet: Fleet,
    histories: Sequence[History],
    states: Sequence[State],
) -> None:
    """Tables and models of the methods trained so far."""
    for name in ("rounds", "clients", "timing"):
        write_table(out, name, [row for h in histories for row in getattr(h, name)])
    vehicles: list[Row] = []
    tensors: dict[str, Tensor] = {}
    for choice, state in zip(config.methods, states, strict=False):
        federation = federation_for(config, choice, fleet)
        for model, weights in (("last", state.weights), ("best", state.best_weights)):
            own = {"method": choice.label, "model": model}
            vehicles += [own | row for row in federation.vehicle_rows(weights)]
            tensors |= _named(federation, f"{choice.label}/{model}", weights)
    write_table(out, "vehicles", vehicles)
    # One entry: safetensors writes several in no fixed order, and equal runs make equal files.
    write_tensors(out / "model.safetensors", tensors, {"fedwatt": to_toml(config)})


def _named(federation: Federation, prefix: str, weights: Tensor) -> dict[str, Tensor]:
    """Each seed's tensors under "LABEL/last/seed-1/hidden1.weight"."""
    return {
        f"{prefix}/seed-{seed}/{name}": part.contiguous().cpu()
        for seed, own in zip(federation.seeds, weights, strict=True)
        for name, part in federation.model.layout.split(own).items()
    }
