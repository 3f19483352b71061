"""Carry out a configuration: train its methods one after the other into a run folder."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedwatt.data import Fleet
from fedwatt.errors import RunError
from fedwatt.federation import Federation, History, Loop, RoundRecord, State
from fedwatt.files import write_text
from fedwatt.personal import personalise
from fedwatt.privacy import Budget, budget, terrain_budget
from fedwatt.runs.checkpoint import (
    Origin,
    latest_checkpoint,
    load_checkpoint,
    memory_folder,
    save_checkpoint,
)
from fedwatt.runs.config import MethodChoice, RunConfig, differences, from_toml, to_toml
from fedwatt.runs.deployment import Deployment
from fedwatt.runs.environment import (
    describe_environment,
    describe_fleet,
    fleet_hashes,
    hash_of,
    participation_hashes,
)
from fedwatt.runs.hills import Refresh, learned_for
from fedwatt.runs.level import LEVEL, Predictions, level_config, predictions_of, with_level
from fedwatt.runs.own_models import own_model_writer
from fedwatt.runs.results import RunResults
from fedwatt.runs.source import OnVehicle, open_fleet
from fedwatt.terrain import Field, Learned
from fedwatt.terrain.store import write_field
from fedwatt.terrain.taught import Taught

Elsewhere = Callable[[RunConfig, Path, Fleet], None]
"""What may train the methods of a configuration on other machines, into a run folder."""

OnHills = Callable[[Learned], None]
"""Told the fields that a run begins with, if its vehicles have learned some."""


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


@dataclass(frozen=True)
class OfLevel:
    """Tells the observer of a run with hills how the training of its level model goes."""

    observer: Observer

    def fleet_ready(self, fleet: Fleet) -> None:
        """It has been told about these vehicles."""

    def method_begins(self, label: str, done: int, rounds: int) -> None:
        """A method starts, or goes on after `done` rounds."""
        self.observer.method_begins(self.named(label), done, rounds)

    def round_done(self, label: str, state: State, record: RoundRecord) -> None:
        """A round of a method is over."""
        self.observer.round_done(self.named(label), state, record)

    def method_ends(self, label: str, history: History) -> None:
        """A method has done all it will do."""
        self.observer.method_ends(self.named(label), history)

    @staticmethod
    def named(label: str) -> str:
        """What the level model of a method is called."""
        return f"{label}, level roads"


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a method's best-validated models predict: the global ones, and the vehicles' own.

    `finite` are the places of the seeds that did not diverge.
    """

    best: Predictions
    personal: Predictions | None
    finite: tuple[int, ...]


def execute(
    config: RunConfig,
    out: Path,
    observer: Observer,
    *,
    resume: bool = False,
    checkpoint_seconds: float = 10.0,
    on_vehicle: OnVehicle | None = None,
    on_hills: OnHills | None = None,
    elsewhere: Elsewhere | None = None,
    predictions: bool = False,
) -> dict[str, Outcome]:
    """Train every method of `config` and fill the run folder `out`.

    A run with hills trains its level model first, into a run folder in its own.

    With `resume`, what an interrupted run of the same configuration left is continued, bit for bit;
    where there is none, one begins. A checkpoint is written at most every `checkpoint_seconds` and
    whenever training stops. `on_vehicle` is told how far the building of the fleet is, `on_hills`
    what was learned of the hills. `elsewhere` may train methods of the fleet on other machines: it
    leaves their checkpoints, and they are gone on with. With `predictions` those of every method's
    best models are returned by its label.
    """
    started = datetime.now(UTC)
    refuse_other_run(config, out, resume)
    below = level_config(config)
    learned = learned_for(config)
    fleet = open_fleet(
        config.fleet, config.data, config.terrain, on_vehicle=on_vehicle, learned=learned
    )
    for choice in config.methods:
        federation_for(config, choice, fleet).check(choice.method)
    budgets = {choice.label: budget_for(config, choice, fleet) for choice in config.methods}
    facts: dict[str, Any] = {}
    if learned is not None:  # refuses noise that nobody can account for
        facts = terrain_facts(config, fleet, learned.shared, len(learned.contributors))
    origin = Origin(run_hash(config), fleet.data_hash())
    for choice in config.methods:  # refuses another's, before a level model is trained for nothing
        latest_checkpoint(out / "checkpoint" / choice.label, origin)
    # Only now, with the data at hand: a run that cannot begin leaves no folder behind.
    write_text(out / "config.toml", to_toml(config))
    if learned is not None:
        taught = Taught.by(learned.contributors, config.data)
        write_field(out / "field.parquet", learned.shared, taught=taught)
    observer.fleet_ready(fleet)
    if learned is not None and on_hills is not None:
        on_hills(learned)
    level: dict[str, Outcome] = {}
    if below is not None:
        level = execute(
            below,
            out / LEVEL,
            OfLevel(observer),
            resume=resume,
            checkpoint_seconds=checkpoint_seconds,
            elsewhere=elsewhere,
            predictions=True,
        )
    if elsewhere is not None:
        elsewhere(config, out, fleet)
    outcomes: dict[str, Outcome] = {}
    results = RunResults(config, out)
    for choice in config.methods:
        folder = out / "checkpoint" / choice.label
        federation = federation_for(config, choice, fleet, memory_folder(folder))
        refresh = refresh_for(config, choice, folder, learned)
        state, history = train_method(
            federation,
            choice,
            folder,
            observer,
            origin,
            checkpoint_seconds,
            budgets[choice.label],
            refresh,
        )
        if refresh is not None:
            federation = refresh.after_training(federation, state)
            hills = refresh.learned
            write_field(
                out / "terrain" / f"{choice.label}.parquet",
                hills.shared,
                taught=Taught.by(hills.contributors, config.data),
            )
        personal = own_models(config, out, choice, federation, state)
        used = {} if personal is None else {"personal": personal.test}
        if predictions or below is not None:
            best = predictions_of(federation, state.best_weights)
            outcome = Outcome(best, personal, tuple(state.live))
            if predictions:
                outcomes[choice.label] = outcome
            if below is not None:
                used = on_board(federation, outcome, level.pop(choice.label))
        rows = {name: federation.prediction_rows(test) for name, test in used.items()}
        results.add(federation, choice, state, history, rows)
    hashes = fleet_hashes(fleet) | {
        "participation": {h.method: participation_hashes(h.clients) for h in results.histories}
    }
    environment = describe_environment(federation.device) | {
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seeds": list(config.seeds),
        "hashes": hashes,
        "fleet": describe_fleet(fleet),
        "privacy": {label: asdict(own) for label, own in budgets.items() if own is not None},
        "terrain": facts,
        "level_model": below is not None,
    }
    write_text(out / "environment.json", json.dumps(environment, indent=2))
    return outcomes


def own_models(
    config: RunConfig, out: Path, choice: MethodChoice, federation: Federation, state: State
) -> Predictions | None:
    """Let vehicles make a method's best model their own, one file each; None if they do not."""
    if not config.personal.enabled:
        return None
    own = personalise(
        federation,
        state.best_weights,
        config.personal,
        keep=own_model_writer(out, choice.label, federation),
    )
    return Predictions(own.validation, own.predictions)


def on_board(
    federation: Federation, hilly: Outcome, level: Outcome
) -> dict[str, NDArray[np.float64]]:
    """Test predictions [R, W] of the best and the personal models, as vehicles would use them.

    Where the level model of a seed diverged, that is the network with hills alone.
    """
    pairs = {"best": (hilly.best, level.best)}
    if hilly.personal is not None and level.personal is not None:
        pairs["personal"] = hilly.personal, level.personal
    used = {name: own.test.copy() for name, (own, _) in pairs.items()}
    for name, (own, other) in pairs.items():
        seeds = list(level.finite)
        used[name][seeds] = with_level(federation, own, other)[seeds]
    return used


def refuse_other_run(config: RunConfig, out: Path, resume: bool) -> None:
    """Raise if `out` holds a run that this one would overwrite or could not continue."""
    path = out / "config.toml"
    if not path.exists():
        return
    if not resume:
        raise RunError(
            f"{out} already holds a run. Continue it with --resume, or choose another --out."
        )
    stored = from_toml(path.read_text(encoding="utf-8"), str(path))
    if run_hash(stored) != run_hash(config):
        changed = differences(_what_counts(stored), _what_counts(config))
        raise RunError(
            f"{out} holds a run with another configuration: {'; '.join(changed)}. A run goes on as "
            "it was begun, its number of rounds included. Leave these changes out, or choose "
            "another --out."
        )


def run_hash(config: RunConfig) -> str:
    """Hash of all that determines the numbers of a run."""
    return hash_of([to_toml(_what_counts(config))])


def _what_counts(config: RunConfig) -> RunConfig:
    """The configuration without deadlines of a real fleet: they may change when a run goes on."""
    return replace(config, deploy=Deployment())


def federation_for(
    config: RunConfig, choice: MethodChoice, fleet: Fleet, scratch: Path | None = None
) -> Federation:
    """The federation in which a method of the run trains; `scratch` as in `Federation`."""
    return Federation(
        fleet,
        config.model.on(fleet),
        training=choice.training(config.training),
        availability=config.availability,
        asynchronous=config.asynchronous,
        seeds=config.seeds,
        device=config.device,
        scratch=scratch,
    )


def refresh_for(
    config: RunConfig, choice: MethodChoice, folder: Path, learned: Learned | None
) -> Refresh | None:
    """What learns a method's hills anew in the midst of its training; None where nothing does."""
    if learned is None or not config.terrain.refresh_every:
        return None
    return Refresh(
        config,
        folder,
        learned,
        lambda fresh: open_fleet(config.fleet, config.data, config.terrain, learned=fresh),
        lambda fleet: federation_for(config, choice, fleet, memory_folder(folder)),
    )


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


def terrain_facts(
    config: RunConfig, fleet: Fleet, shared: Field, contributors: int, learnings: int = 1
) -> dict[str, Any]:
    """How many nodes the run's vehicles share, and what noise on their sums has spent."""
    facts = {"nodes": shared.nodes, "vehicles": contributors}
    return facts | terrain_spending(config, fleet, learnings)


def terrain_spending(config: RunConfig, fleet: Fleet, learnings: int = 1) -> dict[str, Any]:
    """What learning hills costs in privacy; empty where there is no noise, or no field to learn.

    `learnings` is how often it was begun: one that was cut off counts as if it had been finished.
    """
    population = sum(not client.held_out for client in fleet.clients)
    own = terrain_budget(config.terrain, population=population)
    if own is None:
        return {}
    return asdict(own) | {"epsilon": own.epsilon(max(learnings, 1) * config.terrain.releases)}


def _spending(record: RoundRecord, own: Budget | None) -> RoundRecord:
    """The record with the ε spent so far in its rows."""
    if own is None:
        return record
    rows = [row | {"epsilon": own.epsilon(row["round"])} for row in record.rounds]
    return replace(record, rounds=rows)


def train_method(
    federation: Federation | Loop,
    choice: MethodChoice,
    folder: Path,
    observer: Observer,
    origin: Origin,
    checkpoint_seconds: float,
    own: Budget | None,
    refresh: Refresh | None = None,
) -> tuple[State, History]:
    """All rounds of a method, going on after its last checkpoint if it has one.

    `refresh` may give it other hills before any round.
    """
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
            if refresh is not None and isinstance(federation, Federation):
                federation, state = refresh.before_round(federation, state)
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
