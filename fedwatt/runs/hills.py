"""The field of a run: learned before the first round, and anew in the midst of training.

RUN/field.parquet                                 what was published before the first round
RUN/checkpoint/LABEL/field-000010.safetensors     sums after the refresh of round 10
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from fedwatt.data import Fleet, Vehicle
from fedwatt.data.features import feature_names, needs_climb
from fedwatt.data.split import held_out_vehicles, natural_key
from fedwatt.data.trip import FloatArray
from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.federation import Federation, State
from fedwatt.federation.evaluate import predict
from fedwatt.federation.participation import first_available
from fedwatt.privacy.fixed_point import Layout
from fedwatt.runs.config import RunConfig
from fedwatt.runs.source import learned_fields, source_vehicles
from fedwatt.runs.tensors import write_tensors
from fedwatt.terrain import Field, Grid, Learned, TerrainSettings, learn
from fedwatt.terrain.exchange import Question, learn_from_totals, too_long
from fedwatt.terrain.learn import own_fields
from fedwatt.terrain.refresh import refreshed
from fedwatt.terrain.solve import solve_field
from fedwatt.terrain.statistics import LAYOUT, Contribution
from fedwatt.terrain.store import read_field, read_taught
from fedwatt.terrain.survey import Survey, survey


def learned_for(config: RunConfig) -> Learned | None:
    """The fields that a run begins with; None where it needs none or has them from elsewhere.

    Vehicles that are held out contribute nothing. Nor do, where the field is refreshed later, those
    that are not there in the first round. With `secure.enabled` it is the field that the same
    vehicles would learn on a real fleet, under masks.
    """
    if not learns_hills(config):
        return None

    def vehicles() -> Iterable[Vehicle]:
        return source_vehicles(config.fleet)

    if config.secure.enabled:
        refuse_unmaskable(config)
        return learned_fields(vehicles, config.data, config.terrain, shared_under_masks)
    if not config.terrain.refresh_every:
        return learned_fields(vehicles, config.data, config.terrain)
    names = [vehicle.name for vehicle in vehicles()]
    never = held_out_vehicles(names, config.data.held_out, config.data.split_seed)
    population = sorted(set(names) - never, key=natural_key)
    there = first_available(config.seeds[0], len(population), config.availability)
    early = frozenset(name for name, here in zip(population, there, strict=True) if here)
    return learn(vehicles(), config.terrain, config.data, contributors=early)


def learns_hills(config: RunConfig) -> bool:
    """Whether a feature is made from the road's slope, and the run's vehicles learn that."""
    return needs_climb(feature_names(config.data.features)) and config.terrain.source == "learn"


def refuse_unmaskable(config: RunConfig) -> None:
    """Raise if hills cannot be learned under masks as the configuration has it."""
    terrain = config.terrain
    if not terrain.area:
        raise SettingError(
            "With secure.enabled vehicles learn hills under masks, over all nodes of a service "
            "area, so that no message shows where its vehicle was. Say where the fleet drives, in "
            "degrees: terrain.area = [SOUTH, NORTH, WEST, EAST], such as [42.2, 42.35, -83.85, "
            "-83.65]."
        )
    if terrain.refresh_every:
        raise SettingError(
            "terrain.refresh_every learns hills anew in training, and that exchange has no masks "
            "yet. Set it to 0, or secure.enabled to false."
        )
    fault = too_long(Grid(cell_m=terrain.cell_m), terrain.segment_s)
    if fault:
        raise SettingError(fault)


def shared_under_masks(
    surveys: Sequence[Survey], grid: Grid, settings: TerrainSettings
) -> tuple[Field, Contribution]:
    """The shared field as an exchange under masks has it, to the last bit.

    Words are added as on a real fleet. Masks cancel out in their sum, so here they are left out.
    """
    names = {f"{number}": one for number, one in enumerate(surveys)}

    def totals(
        question: Question, present: frozenset[str]
    ) -> tuple[dict[str, FloatArray], frozenset[str]]:
        layout = Layout.of(question.fields, vehicles=len(present))
        words = np.zeros(layout.length, dtype=np.uint64)
        for name in present:
            words += layout.encode(question.answer(names[name]))
        return layout.decode(words), present

    found = learn_from_totals(totals, frozenset(names), grid, settings)
    return found.field, found.sums


@dataclass
class Refresh:
    """Swaps a method's federation for one with better hills, every so many rounds."""

    config: RunConfig
    folder: Path
    """Of the method's checkpoints."""
    learned: Learned
    build: Callable[[Learned], Fleet]
    federate: Callable[[Fleet], Federation]
    done: int = 0
    """Round of the last refresh; 0: none yet."""
    federation: Federation | None = None
    """The one with the hills of that refresh."""

    def before_round(self, federation: Federation, state: State) -> tuple[Federation, State]:
        """The federation and the state with which the next round is to go on."""
        federation = self._with_hills_of(state.round, federation, state)
        if self.done and self.done == state.round:
            # Earlier models were judged with other hills: the best is sought from here on.
            unknown = torch.full_like(state.best_validation, torch.inf)
            state = replace(state, best_validation=unknown)
        return federation, state

    def after_training(self, federation: Federation, state: State) -> Federation:
        """The federation that the last round was trained in, also of a run that was finished."""
        return self._with_hills_of(max(state.round - 1, 0), federation, state)

    def _with_hills_of(self, round: int, federation: Federation, state: State) -> Federation:
        last = round - round % self.config.terrain.refresh_every
        if last != self.done:
            self.learned = self._learned(federation, state, last)
            self.federation = self.federate(self.build(self.learned))
            self.done = last
        return self.federation or federation

    def _learned(self, federation: Federation, state: State, last: int) -> Learned:
        file = self.folder / f"field-{last:06d}.safetensors"
        if file.exists():
            return self._read(file)
        if last != state.round:
            raise RunError(
                f"{file} is missing, so the hills of round {last} are not known. Delete "
                f"{self.folder} to start its method anew."
            )
        fresh = refreshed(
            self._vehicles,
            self.learned,
            training_predictions(federation, state),
            self.config.terrain,
            self.config.data,
        )
        tensors = {name: _tensor(getattr(fresh.sums, name)) for name, *_ in LAYOUT}
        names = {"contributors": json.dumps(sorted(fresh.contributors))}
        write_tensors(file, tensors, names)
        return fresh

    def _read(self, file: Path) -> Learned:
        """The fields of an earlier refresh: its sums solved again, private ground learned again."""
        try:
            with safe_open(file, framework="numpy") as stored:
                contributors = frozenset(json.loads(stored.metadata()["contributors"]))
                sums = Contribution(**{name: stored.get_tensor(name) for name, *_ in LAYOUT})
        except (SafetensorError, KeyError, TypeError, ValueError) as problem:
            raise RunError(
                f"{file} is damaged: {problem}. Delete {self.folder} to start its method anew."
            ) from problem
        settings, data, grid = self.config.terrain, self.config.data, self.learned.shared.grid
        shared = solve_field(grid, sums, settings.prior_grade)
        surveys, judges = {}, {}
        for one in self._vehicles():
            if one.name in contributors:
                surveys[one.name] = survey(one, grid, settings.segment_s, data)
                judges[one.name] = survey(one, grid, settings.segment_s, data, "validation")
        own = own_fields(list(self.learned.own), surveys, judges, shared, settings)
        return Learned(shared, own, sums, contributors)

    def _vehicles(self) -> Iterable[Vehicle]:
        return source_vehicles(self.config.fleet)


def refreshed_field(config: RunConfig, file: Path, vehicle: str) -> Field:
    """A vehicle's own field after training: the shared one of `file`, and its private ground.

    As in the run, a vehicle that never contributed (held out, or never there) reads what is shared.
    """
    shared, taught = read_field(file), read_taught(file)
    one = next((v for v in source_vehicles(config.fleet) if v.name == vehicle), None)
    if one is None:
        raise DataError(
            f"Vehicle '{vehicle}' is not in the run's fleet '{config.fleet.data}', so the run has "
            "no field for it. Give one with --terrain ('fedwatt terrain learn' makes it)."
        )
    if taught is None:
        raise DataError(
            f"{file} does not say who contributed, so the run's field of vehicle '{vehicle}' is "
            "not known. Give one with --terrain."
        )
    if vehicle not in taught.vehicles:
        return shared
    grid, settings = shared.grid, config.terrain
    training = survey(one, grid, settings.segment_s, config.data)
    judge = survey(one, grid, settings.segment_s, config.data, "validation")
    return own_fields([vehicle], {vehicle: training}, {vehicle: judge}, shared, settings)[vehicle]


def training_predictions(federation: Federation, state: State) -> dict[str, FloatArray]:
    """Energy in Wh that the current model gives the training windows of vehicles now available."""
    pool, clients = federation.pool, federation.fleet.clients
    weights = state.weights[:1, : federation.model.layout.size]
    predicted = predict(federation.model, weights, pool, pool.train)[0]
    there = federation.population[state.available[0].numpy()]
    return {
        clients[k].name: clients[k].energy_wh(
            predicted[pool.train.offsets[k] : pool.train.offsets[k + 1]]
        )
        for k in there
    }


def _tensor(values: FloatArray) -> torch.Tensor:
    return torch.from_numpy(values.copy())
