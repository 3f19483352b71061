"""Elevation as a step of a run: the map, its refresh, and the model without elevation.

RUN/field.parquet                                 the map published before the first round
RUN/elevation/LABEL.parquet                       the map published last in a method's training
RUN/checkpoint/LABEL/field-000010.safetensors     sums after the refresh of round 10
RUN/level/                                        the run folder of the same methods without climb,
                                                  trained before those with elevation

`fedwatt.elevation` has how a map is learned and which of the two networks predicts a window.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedwatt.elevation.elevation_map import Field
from fedwatt.elevation.exchange import refuse_unmaskable, share_by
from fedwatt.elevation.learn import Learned, learn_alone, own_fields, survey_fleet
from fedwatt.elevation.level import LEVEL as LEVEL
from fedwatt.elevation.level import Predictions, borne_out, level_data
from fedwatt.elevation.refresh import refreshed, solved_again
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.sources import learn_fields, learns_field
from fedwatt.elevation.statistics import Contribution
from fedwatt.elevation.store import Provenance, read_field, read_provenance, write_field
from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.evaluation import Baselines
from fedwatt.federation import Federation, History, Loop, RoundRecord, State
from fedwatt.federation.evaluate import predict
from fedwatt.federation.participation import first_available
from fedwatt.files import parse_json
from fedwatt.metrics.sums import add_up
from fedwatt.privacy import Budget
from fedwatt.runs.config import RunConfig
from fedwatt.runs.model_file import write_tensors
from fedwatt.runs.observers import Observer
from fedwatt.runs.source import open_fleet, source_vehicles
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows import Fleet
from fedwatt.windows.features import feature_names, needs_climb

SUMS = tuple(part.name for part in fields(Contribution))


def learns_elevation(config: RunConfig) -> bool:
    """Return whether a feature is made from the road's slope, and the run's vehicles learn that."""
    return learns_field(config.elevation, config.data)


def shares_elevation(config: RunConfig) -> bool:
    """Return whether the vehicles of a real fleet learn hills in the run: for features, or for
    routes.
    """
    return learns_elevation(config) or config.deploy.routes


def learned_for(config: RunConfig) -> Learned | None:
    """Return the fields that a run begins with; None where it needs none or has them from
    elsewhere.
    """
    return learned_elevation(config) if learns_elevation(config) else None


def learned_elevation(config: RunConfig) -> Learned:
    """Return the fields that the vehicles of a run learn, whether or not its features have hills.

    Vehicles that are held out contribute nothing. Nor do, where the field is refreshed later, those
    that are not there in the first round. With `secure.enabled` it is the field that the same
    vehicles would learn on a real fleet, under masks.
    """
    vehicles = partial(source_vehicles, config.fleet, config.data)
    learn = partial(learn_fields, vehicles, config.data, config.elevation)
    if config.secure.enabled:
        refuse_unmaskable(config.elevation)
        return learn(share=share_by(add_up))
    if config.elevation.refresh_every and learns_elevation(config):
        seed = config.seeds[0]
        availability = config.availability
        return learn(present=lambda vehicles: first_available(seed, vehicles, availability))
    return learn()


def learned_alone(config: RunConfig, learners: frozenset[str] | None = None) -> Learned:
    """Return the maps of local-only vehicles, each learned from its own training trips alone.

    Vehicles outside `learners` (None: all learn) have an empty map.
    """
    vehicles = source_vehicles(config.fleet, config.data)
    return learn_alone(vehicles, config.elevation, config.data, learners=learners)


def run_fleet(config: RunConfig) -> Fleet:
    """Return the fleet of a run, with hills where its features need them."""
    return open_fleet(config, learned_for(config))


def refuse_refreshes(config: RunConfig) -> None:
    """Raise if the methods of a run cannot train in processes of their own."""
    if config.elevation.refresh_every:
        raise SettingError(
            "Hills that are learned anew during training need all methods in this process. "
            "Leave out --ray, or set elevation.refresh_every = 0."
        )


def write_learned(file: Path, learned: Learned, config: RunConfig) -> None:
    """Write the published elevation map with the vehicles it was learned from."""
    provenance = Provenance.by(learned.contributors, config.data)
    write_field(file, learned.shared, provenance=provenance)


def elevation_facts(
    config: RunConfig, fleet: Fleet, shared: Field, contributors: int, learnings: int = 1
) -> dict[str, Any]:
    """Return the number of shared nodes, and the privacy that noise on their sums has spent."""
    facts = {"nodes": shared.nodes, "vehicles": contributors}
    return facts | elevation_spending(config, fleet, learnings)


def elevation_budget(settings: ElevationSettings, *, population: int) -> Budget | None:
    """Return the budget of a field learned with noise by K vehicles; None: without.

    Each of its published vectors is one Gaussian mechanism that every vehicle takes part in:
    `Budget.epsilon(settings.releases)` is what learning the field once costs.
    """
    if not settings.noise_multiplier:
        return None
    return Budget(settings.noise_multiplier, 1.0, max(population, 2) ** -1.1)


def elevation_spending(config: RunConfig, fleet: Fleet, learnings: int = 1) -> dict[str, Any]:
    """Return the privacy spent on learning elevation; empty without noise or without learning.

    `learnings` is how often it was begun: one that was cut off counts as if it had been finished.
    """
    population = sum(not client.held_out for client in fleet.clients)
    budget = elevation_budget(config.elevation, population=population)
    if budget is None:
        return {}
    releases = max(learnings, 1) * config.elevation.releases
    return asdict(budget) | {"epsilon": budget.epsilon(releases)}


@dataclass
class ElevationRefresh:
    """A method's elevation map, learned again from its model every so many rounds."""

    config: RunConfig
    folder: Path  # of the method's checkpoints
    learned: Learned
    federate: Callable[[Fleet], Federation]  # makes the method's federation of a fleet
    done: int = 0  # round of the last refresh; 0: none yet
    federation: Federation | None = None  # the one with the hills of that refresh

    def before_round(self, loop: Loop, state: State) -> tuple[Loop, State]:
        """Return the federation and the state with which the next round is to go on."""
        loop = self._with_elevation_of(state.round, loop, state)
        if self.done and self.done == state.round:
            # Earlier models were evaluated with other hills: the best is sought from here on.
            unknown = torch.full_like(state.best_validation, torch.inf)
            state = replace(state, best_validation=unknown)
        return loop, state

    def after_training(self, loop: Loop, state: State, file: Path) -> Loop:
        """Return the federation that the last round was trained in; what it published goes to
        `file`.
        """
        loop = self._with_elevation_of(max(state.round - 1, 0), loop, state)
        write_learned(file, self.learned, self.config)
        return loop

    def _with_elevation_of(self, round: int, loop: Loop, state: State) -> Loop:
        last = round - round % self.config.elevation.refresh_every
        if last != self.done:
            self.learned = self._learned(loop, state, last)
            self.federation = self.federate(open_fleet(self.config, self.learned))
            self.done = last
        return self.federation or loop

    def _learned(self, loop: Loop, state: State, last: int) -> Learned:
        file = self.folder / f"field-{last:06d}.safetensors"
        vehicles = partial(source_vehicles, self.config.fleet, self.config.data)
        settings = self.config.elevation
        data = self.config.data
        if file.exists():
            return solved_again(vehicles(), self.learned, *self._read(file), settings, data)
        if last != state.round:
            raise RunError(
                f"{file} is missing, so the hills of round {last} are not known. Delete "
                f"{self.folder} to start its method anew."
            )
        predicted_wh = training_predictions(cast(Federation, loop), state)
        fresh = refreshed(vehicles, self.learned, predicted_wh, settings, data)
        tensors = {name: torch.from_numpy(getattr(fresh.sums, name).copy()) for name in SUMS}
        write_tensors(file, tensors, {"contributors": json.dumps(sorted(fresh.contributors))})
        return fresh

    def _read(self, file: Path) -> tuple[Contribution, frozenset[str]]:
        """Return the sums of an earlier refresh, and who contributed to them."""
        try:
            with safe_open(file, framework="numpy") as stored:
                contributors = frozenset(parse_json(stored.metadata()["contributors"]))
                sums = Contribution(**{name: stored.get_tensor(name) for name in SUMS})
        except (SafetensorError, KeyError, TypeError, ValueError) as problem:
            raise RunError(
                f"{file} is damaged: {problem}. Delete {self.folder} to start its method anew."
            ) from problem
        return sums, contributors


def training_predictions(federation: Federation, state: State) -> dict[str, FloatArray]:
    """Energy in Wh that the current model gives the training windows of vehicles now available."""
    pool = federation.pool
    clients = federation.fleet.clients
    weights = state.weights[:1, : federation.model.layout.size]
    predicted = predict(federation.model, weights, pool, pool.train)[0]
    present = federation.members.population[state.available[0].numpy()]
    return {
        clients[k].name: clients[k].energy_wh(
            predicted[pool.train.offsets[k] : pool.train.offsets[k + 1]]
        )
        for k in present
    }


def vehicle_field(
    config: RunConfig, run: Path, method: str, vehicle: str, file: Path | None = None
) -> Field | None:
    """Return the field in a vehicle's model file: that of `file`, or the run's own. None for no
    hills.

    A field that the run learned is learned again, from the same training trips: the shared nodes
    and, on top, the vehicle's private ones, which no run folder holds. One that was refreshed in
    training is in the run. That of a real fleet is on the vehicle's own disk, and asked for.
    """
    hilly = needs_climb(feature_names(config.data.features))
    source = config.elevation.source
    if not hilly or source == "measured":
        if file is not None:
            raise SettingError(
                "The run needs no elevation field: "
                + ("its climb is measured." if hilly else "climb is not among its features.")
                + " Leave --elevation-map out."
            )
        return None
    if file is not None or not config.elevation.learns:
        return read_field(file or Path(source))
    if config.elevation.refresh_every:
        return refreshed_field(config, run / "elevation" / f"{method}.parquet", vehicle)
    if (run / "deployment.json").exists():
        raise DataError(
            f"The hills of {run} were learned on a real fleet, and those of vehicle '{vehicle}' "
            "are on its own disk. Give its --state folder here as well, or the file of a field "
            "with --elevation."
        )
    learned = learned_for(config)
    if learned is None or vehicle not in learned.own:
        raise _not_in_fleet(config, vehicle)
    return learned.own[vehicle]


def refreshed_field(config: RunConfig, file: Path, vehicle: str) -> Field:
    """Return a vehicle's map after training: the shared one of `file`, with its private nodes.

    As in the run, a vehicle that never contributed (held out, or never available) has the shared
    map.
    """
    shared = read_field(file)
    provenance = read_provenance(file)
    candidates = source_vehicles(config.fleet, config.data)
    alone = next((candidate for candidate in candidates if candidate.name == vehicle), None)
    if alone is None:
        raise _not_in_fleet(config, vehicle)
    if provenance is None:
        raise DataError(
            f"{file} does not say who contributed, so the run's field of vehicle '{vehicle}' is "
            "not known. Give one with --elevation."
        )
    survey = survey_fleet([alone], provenance.vehicles, shared.grid, config.elevation, config.data)
    return own_fields(*survey, shared, config.elevation)[vehicle]


def _not_in_fleet(config: RunConfig, vehicle: str) -> DataError:
    return DataError(
        f"Vehicle '{vehicle}' is not in the run's fleet '{config.fleet.data}', so the run has "
        "no field for it. Give one with --elevation ('fedwatt elevation learn' makes it)."
    )


def config_without_elevation(config: RunConfig) -> RunConfig | None:
    """Return the configuration of a run's model without elevation; None: it trains none."""
    data = level_data(config.data)
    if data is None or not config.elevation.model_without_elevation:
        return None
    for choice in config.methods:
        if choice.method.server.private:
            raise SettingError(
                f"Method '{choice.label}' adds noise for privacy, and a run with hills would train "
                "it twice and spend its budget twice: for the level model, too. Set "
                "elevation.model_without_elevation = false; windows without known climb are then "
                "predicted as level roads by the one model."
            )
    return replace(
        config,
        data=data,
        elevation=ElevationSettings(),
        baselines=Baselines(enabled=False),
        deploy=replace(config.deploy, routes=False),
    )


def label_without_elevation(label: str) -> str:
    """Return the label of the model without elevation of the method `label`."""
    return f"{label}, level roads"


@dataclass(frozen=True)
class ObserverWithoutElevation(Observer):
    """Tells the observer of a run how the training of its level model goes."""

    observer: Observer  # knows the vehicles already

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """Pass on the start of a method, or its continuation after `done` rounds."""
        self.observer.on_start(label_without_elevation(label), done, rounds)

    def on_round(self, label: str, state: State, record: RoundRecord) -> None:
        """Pass on the end of a round."""
        self.observer.on_round(label_without_elevation(label), state, record)

    def on_end(self, label: str, history: History) -> None:
        """Pass on the end of a method."""
        self.observer.on_end(label_without_elevation(label), history)


@dataclass(frozen=True, eq=False)
class ModelPredictions:
    """Predictions of a method's final models, global and personalised.

    `finite` are the places of the seeds that did not diverge.
    """

    final: Predictions
    personalised: Predictions | None
    finite: tuple[int, ...]


def predictions_of(federation: Federation, weights: Tensor) -> Predictions:
    """Return the predictions of the global models `weights` [R, D]."""
    model = federation.model
    pool = federation.pool
    weights = weights[:, : model.layout.size]
    return Predictions(
        predict(model, weights, pool, pool.validation), predict(model, weights, pool, pool.test)
    )


def choose_by_elevation(
    federation: Federation, with_elevation: Predictions, without: Predictions
) -> FloatArray:
    """Return test predictions [R, W], each of the model that its vehicle would use.

    `federation` is the one with elevation; the other has the same windows in the same order.
    """
    splits = (federation.pool.validation, federation.pool.test)
    result = without.test.copy()
    for vehicle, client in enumerate(federation.fleet.clients):
        evaluated, test = (slice(*windows.offsets[vehicle : vehicle + 2]) for windows in splits)
        for run, predictions in enumerate(result):
            if borne_out(
                with_elevation.validation[run, evaluated],
                without.validation[run, evaluated],
                client,
            ):
                predictions[test] = np.where(
                    client.climb_known["test"],
                    with_elevation.test[run, test],
                    without.test[run, test],
                )
    return result


def predictions_in_use(
    federation: Federation, with_elevation: ModelPredictions, without: ModelPredictions
) -> dict[str, FloatArray]:
    """Return test predictions [R, W] of the final and personalised models that vehicles use.

    Where the model without elevation of a seed diverged, that is the model with elevation.
    """
    pairs = {"final": (with_elevation.final, without.final)}
    if with_elevation.personalised is not None and without.personalised is not None:
        pairs["personalised"] = with_elevation.personalised, without.personalised
    used = {}
    seeds = list(without.finite)
    for name, (first, second) in pairs.items():
        used[name] = first.test.copy()
        used[name][seeds] = choose_by_elevation(federation, first, second)[seeds]
    return used
