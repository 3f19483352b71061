"""Carry out a configuration: train its methods one after the other into a run folder."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from fedwatt.errors import RunError
from fedwatt.federation import Buffered, Federation, History, RoundRecord, State
from fedwatt.federation.records import Row
from fedwatt.fleet import Fleet
from fedwatt.models import get_model
from fedwatt.personal import personalise
from fedwatt.privacy import Budget, budget
from fedwatt.runs.checkpoint import Origin, load_checkpoint, memory_folder, save_checkpoint
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
    refuse_other_run(config, out, resume)
    fleet = open_fleet(config.fleet, config.data, config.terrain)
    for choice in config.methods:
        federation_for(config, choice, fleet).check(choice.method)
    budgets = {choice.label: budget_for(config, choice, fleet) for choice in config.methods}
    # Only now, with the data at hand: a run that cannot begin leaves no folder behind.
    write_text(out / "config.toml", to_toml(config))
    observer.fleet_ready(fleet)
    histories, states = [], []
    personal: list[Row] = []
    for choice in config.methods:
        folder = out / "checkpoint" / choice.label
        federation = federation_for(config, choice, fleet, memory_folder(folder))
        state, history = _train(
            federation,
            choice,
            folder,
            observer,
            Origin(run_hash(config), fleet.data_hash()),
            checkpoint_seconds,
            budgets[choice.label],
        )
        histories.append(history)
        states.append(state)
        if config.personal.enabled:
            own = personalise(federation, state.best_weights, config.personal)
            label = {"method": choice.label, "model": "personal"}
            personal += [label | row for row in federation.prediction_rows(own.predictions)]
        _write_results(config, out, fleet, histories, states, personal)
    hashes = fleet_hashes(fleet) | {
        "participation": {h.method: participation_hashes(h.clients) for h in histories}
    }
    environment = describe_environment(federation.device) | {
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seeds": list(config.seeds),
        "hashes": hashes,
        "fleet": describe_fleet(fleet),
        "privacy": {label: asdict(own) for label, own in budgets.items() if own is not None},
    }
    write_text(out / "environment.json", json.dumps(environment, indent=2))


def refuse_other_run(config: RunConfig, out: Path, resume: bool) -> None:
    """Raise if `out` holds a run that this one would overwrite or could not continue."""
    path = out / "config.toml"
    if not path.exists():
        return
    if not resume:
        raise RunError(
            f"{out} already holds a run. Continue it with --resume, or choose another --out."
        )
    if run_hash(from_toml(path.read_text(encoding="utf-8"), str(path))) != run_hash(config):
        raise RunError(
            f"{out} holds a run with another configuration. Resume with its own config.toml, "
            "or choose another --out."
        )


def run_hash(config: RunConfig) -> str:
    """Hash of all that determines the numbers of a run."""
    return hash_of([to_toml(config)])


def federation_for(
    config: RunConfig, choice: MethodChoice, fleet: Fleet, scratch: Path | None = None
) -> Federation:
    """The federation in which a method of the run trains; `scratch` as in `Federation`."""
    model = get_model(
        config.model.name,
        window=fleet.window,
        features=len(fleet.features),
        hidden=config.model.hidden,
    )
    terms: dict[str, Any] = {
        "training": choice.training(config.training),
        "availability": config.availability,
        "seeds": config.seeds,
        "device": config.device,
        "scratch": scratch,
    }
    if config.asynchronous.buffer:
        return Buffered(fleet, model, asynchronous=config.asynchronous, **terms)
    return Federation(fleet, model, **terms)


def budget_for(config: RunConfig, choice: MethodChoice, fleet: Fleet) -> Budget | None:
    """What a method of the run gives away; None if it is not private. Refuses what has no ε."""
    own = budget(
        choice.method,
        participation=config.training.participation,
        population=sum(not client.held_out for client in fleet.clients),
    )
    if own is not None:
        own.epsilon(1)  # without the accountant a run stops here, not after its first round
    return own


def _spending(record: RoundRecord, own: Budget | None) -> RoundRecord:
    """The record with the ε spent so far in its rows."""
    if own is None:
        return record
    rows = [row | {"epsilon": own.epsilon(row["round"])} for row in record.rounds]
    return replace(record, rounds=rows)


def _train(
    federation: Federation,
    choice: MethodChoice,
    folder: Path,
    observer: Observer,
    origin: Origin,
    checkpoint_seconds: float,
    own: Budget | None,
) -> tuple[State, History]:
    seeds = len(federation.seeds)
    found = load_checkpoint(folder, choice.label, origin)
    if found is None:
        state, record = federation.start(choice.method)
        history = History(choice.label)
        history.add(0, seeds, _spending(record, own))
    else:
        state, history = found
        state = state.to(federation.device)
    observer.method_begins(choice.label, state.round, federation.training.rounds)
    saved, saved_at = (state.round if found else -1), time.monotonic()
    try:
        while not federation.finished(state):
            state, record = federation.advance(choice.method, state)
            record = _spending(record, own)
            history.add(state.round, seeds, record)
            observer.round_done(choice.label, state, record)
            if time.monotonic() - saved_at >= checkpoint_seconds:
                save_checkpoint(folder, state, history, origin)
                saved, saved_at = state.round, time.monotonic()
    finally:
        # Reached on Ctrl-C as well: `state` and `history` hold completed rounds only.
        if saved != state.round and history.timing[-1]["round"] == state.round:
            save_checkpoint(folder, state, history, origin)
    observer.method_ends(choice.label, history)
    return state, history


def _write_results(
    config: RunConfig,
    out: Path,
    fleet: Fleet,
    histories: Sequence[History],
    states: Sequence[State],
    personal: Sequence[Row],
) -> None:
    """Tables and models of the methods trained so far."""
    for name in ("rounds", "clients", "timing"):
        write_table(out, name, [row for h in histories for row in getattr(h, name)])
    vehicles = list(personal)
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
    """Each seed's tensors under "LABEL/last/seed-1/hidden1.weight"; a method's extra heads stay."""
    layout = federation.model.layout
    return {
        f"{prefix}/seed-{seed}/{name}": part.contiguous().cpu()
        for seed, own in zip(federation.seeds, weights, strict=True)
        for name, part in layout.split(own[: layout.size]).items()
    }
