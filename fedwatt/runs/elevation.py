"""Hills as a step of a run: learned before the first round, and anew in the midst of training.

RUN/field.parquet                                 what was published before the first round
RUN/elevation/LABEL.parquet                         what was published last in a method's training
RUN/checkpoint/LABEL/field-000010.safetensors     sums after the refresh of round 10

How a field is learned is `fedwatt.elevation`'s.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from fedwatt.elevation.elevation_map import Field
from fedwatt.elevation.exchange import refuse_unmaskable, share_by
from fedwatt.elevation.learn import Learned, learn_alone, own_fields, survey_fleet
from fedwatt.elevation.refresh import refreshed, solved_again
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.sources import learn_fields, learns_field
from fedwatt.elevation.statistics import Contribution
from fedwatt.elevation.store import Provenance, read_field, read_provenance, write_field
from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.federation import Federation, State
from fedwatt.federation.evaluate import predict
from fedwatt.federation.participation import first_available
from fedwatt.files import parse_json
from fedwatt.privacy import Budget
from fedwatt.runs.config import RunConfig
from fedwatt.runs.source import open_fleet, source_vehicles
from fedwatt.runs.tensors import write_tensors
from fedwatt.sums import add_up
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
    own = elevation_budget(config.elevation, population=population)
    if own is None:
        return {}
    return asdict(own) | {"epsilon": own.epsilon(max(learnings, 1) * config.elevation.releases)}


@dataclass
class Refresh:
    """Swaps a method's federation for one with better hills, every so many rounds."""

    config: RunConfig
    folder: Path  # of the method's checkpoints
    learned: Learned
    federate: Callable[[Fleet], Federation]  # makes the method's federation of a fleet
    done: int = 0  # round of the last refresh; 0: none yet
    federation: Federation | None = None  # the one with the hills of that refresh

    def before_round(self, federation: Federation, state: State) -> tuple[Federation, State]:
        """Return the federation and the state with which the next round is to go on."""
        federation = self._with_elevation_of(state.round, federation, state)
        if self.done and self.done == state.round:
            # Earlier models were evaluated with other hills: the best is sought from here on.
            unknown = torch.full_like(state.best_validation, torch.inf)
            state = replace(state, best_validation=unknown)
        return federation, state

    def after_training(self, federation: Federation, state: State, file: Path) -> Federation:
        """Return the federation that the last round was trained in; what it published goes to
        `file`.
        """
        federation = self._with_elevation_of(max(state.round - 1, 0), federation, state)
        write_learned(file, self.learned, self.config)
        return federation

    def _with_elevation_of(self, round: int, federation: Federation, state: State) -> Federation:
        last = round - round % self.config.elevation.refresh_every
        if last != self.done:
            self.learned = self._learned(federation, state, last)
            self.federation = self.federate(open_fleet(self.config, self.learned))
            self.done = last
        return self.federation or federation

    def _learned(self, federation: Federation, state: State, last: int) -> Learned:
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
        predicted_wh = training_predictions(federation, state)
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
    there = federation.members.population[state.available[0].numpy()]
    return {
        clients[k].name: clients[k].energy_wh(
            predicted[pool.train.offsets[k] : pool.train.offsets[k + 1]]
        )
        for k in there
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
    """Return a vehicle's own field after training: the shared one of `file`, and its private
    ground.

    As in the run, a vehicle that never contributed (held out, or never there) reads what is shared.
    """
    shared = read_field(file)
    provenance = read_provenance(file)
    everyone = source_vehicles(config.fleet, config.data)
    alone = list(islice((one for one in everyone if one.name == vehicle), 1))
    if not alone:
        raise _not_in_fleet(config, vehicle)
    if provenance is None:
        raise DataError(
            f"{file} does not say who contributed, so the run's field of vehicle '{vehicle}' is "
            "not known. Give one with --elevation."
        )
    found = survey_fleet(alone, provenance.vehicles, shared.grid, config.elevation, config.data)
    return own_fields(*found, shared, config.elevation)[vehicle]


def _not_in_fleet(config: RunConfig, vehicle: str) -> DataError:
    return DataError(
        f"Vehicle '{vehicle}' is not in the run's fleet '{config.fleet.data}', so the run has "
        "no field for it. Give one with --elevation ('fedwatt elevation learn' makes it)."
    )
