"""The simulated backend of a run: vehicles in this process, or on the machines of a Ray cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from torch import Tensor

from fedwatt.elevation.learn import Learned
from fedwatt.elevation.store import Provenance, write_map_file
from fedwatt.errors import DataError
from fedwatt.evaluation import PersonalisedModel, baseline_rows, personalise
from fedwatt.evaluation.baselines import (
    WITHOUT_ELEVATION,
    baseline_vehicles,
    federated_rows,
)
from fedwatt.federation import Federation, Loop, State
from fedwatt.federation.evaluate import Predictions, predictions_of
from fedwatt.federation.federation import Network
from fedwatt.federation.records import Row
from fedwatt.runs.config import MethodChoice, RunConfig
from fedwatt.runs.journeys import (
    mixed_predictions,
    read_fleet_ridge,
    write_fleet_ridge,
    write_trip_prior,
    write_unseen,
)
from fedwatt.runs.model_file import personalised_file, write_personalised
from fedwatt.runs.provenance import fleet_partition
from fedwatt.runs.run import Run, RunBackend
from fedwatt.runs.source import (
    learned_alone,
    learned_for,
    learns_elevation,
    open_fleet,
    unsurveyed_clients,
)
from fedwatt.windows import Fleet
from fedwatt.windows.features import features_without_elevation

TrainElsewhere = Callable[[RunConfig, Path, Fleet], None]
"""Trains the methods of a configuration on other machines and leaves their checkpoints in the run
folder."""


@dataclass
class Simulation(RunBackend):
    """Vehicles that are simulated in this process.

    Routes are learned when they are first needed (`runs.journeys`).
    """

    deployed: ClassVar[bool] = False

    at_hand: Federation | None = None
    """The federation that trains every method, in place of one of the configuration."""
    fleet_given: Fleet | None = None
    model_given: str | Network | None = None
    train_elsewhere: TrainElsewhere | None = None
    learned: Learned | None = field(default=None, init=False)
    """The elevation map with which the run begins."""
    opened: Fleet | None = field(default=None, init=False)

    def open(self, run: Run) -> Fleet:
        """Learn the elevation map, from which features are made, and build the vehicles."""
        fleet = self.fleet_given if self.at_hand is None else self.at_hand.fleet
        if fleet is None and run.out is not None and (run.out / "deployment.json").exists():
            raise DataError(
                f"The vehicles of {run.out} are deployed, and their trips with them. Pass a fleet "
                "that is here: fedwatt.load(RUN, fleet=...)."
            )
        if fleet is None:
            self.learned = learned_for(run.config)
            if self.learned is not None:
                run.observer.on_elevation(self.learned, run.config.elevation)
            fleet = open_fleet(run.config, self.learned, run.observer)
        self.opened = fleet
        return fleet

    def fleet(self, run: Run) -> Fleet:
        """Return the vehicles, opened when they are first needed."""
        return self.open(run) if self.opened is None else self.opened

    def hashes(self, run: Run) -> dict[str, Any]:
        """Hash the splits (trips), the partition (vehicles, windows) and the data itself."""
        fleet = self.fleet(run)
        return {
            "splits": fleet.split_hash(),
            "partition": fleet_partition(fleet),
            "data": fleet.data_hash(),
        }

    def data_identity(self, run: Run) -> str:
        """Return a hash of the data itself."""
        return self.fleet(run).data_hash()

    def loop(self, run: Run, choice: MethodChoice) -> Federation:
        """Return the federation in which a method trains."""
        if self.at_hand is not None:
            return self.at_hand
        fleet = self.fleet(run)
        return federation_for(run.config, choice, fleet, self.model_given)

    def share_elevation(self, run: Run) -> dict[str, Any]:
        """Write the published elevation map; methods may then train on other machines."""
        facts: dict[str, Any] = {}
        fleet = self.fleet(run)  # learns the map
        if self.learned is not None:
            learned = self.learned
            file = run.folder / "elevation_map.parquet"
            provenance = Provenance.by(learned.contributors, run.config.data)
            write_map_file(file, learned.shared, provenance=provenance)
            facts = {"nodes": learned.shared.nodes, "vehicles": len(learned.contributors)}
        if self.train_elsewhere is not None:
            self.train_elsewhere(run.config, run.folder, fleet)
        return facts

    def baselines(self, run: Run) -> list[Row]:
        """Train the baselines, at learning rates around the first method's.

        An elevation map that vehicles learn together is part of federating: a local-only vehicle
        has the map that it learns from its own training trips, or none if that validates better.
        """
        config = run.config
        choice = config.methods[0]
        fleet = self.fleet(run)
        federation_of = partial(federation_for, config, choice, model=self.model_given)
        federation = federation_of(fleet)
        evaluated = federation.evaluated
        share = config.training.participation
        if config.asynchronous.buffer:
            share = min(1.0, config.asynchronous.buffer / len(federation.members.population))
        alone = []
        level = None
        if learns_elevation(config):
            learners = frozenset(evaluated.fleet.name(k) for k in baseline_vehicles(evaluated))
            alone.append(federation_of(open_fleet(config, learned_alone(config, learners))))
            if features := features_without_elevation(config.data.features):
                data = replace(config.data, features=features)
                level = federation_of(open_fleet(replace(config, data=data)))
                alone.append(level)
        rows = baseline_rows(
            evaluated,
            share,
            alone=alone,
            personalisation=config.personalisation,
            on_done=run.observer.on_baseline,
            pooled=not fleet.is_lazy,
        )
        if level is not None:
            rows += federated_rows(WITHOUT_ELEVATION, level, choice.method)
            run.observer.on_baseline(WITHOUT_ELEVATION)
        return rows

    def evaluate(
        self, run: Run, choice: MethodChoice, loop: Loop, state: State
    ) -> dict[str, list[Row]]:
        """Return errors of personalised models and of mixtures with ridges."""
        federation = cast(Federation, loop)
        personalised = _personalised_predictions(run, choice, federation, state)
        evaluated = federation.evaluated
        final = predictions_of(evaluated.model, state.final_weights, evaluated.pool)
        mixes = run.config.model.mixture
        if mixes:
            final = mixed_predictions(evaluated, final)
            personalised = personalised and mixed_predictions(evaluated, personalised)
            write_fleet_ridge(run.folder, evaluated.fleet.clients)
        write_trip_prior(run.folder, choice.label, evaluated, personalised or final, state.live)
        if state.live:
            ridge = read_fleet_ridge(run.folder)
            weights = state.final_weights[state.live[0]]
            learned = self.learned
            scored = None if learned is None else unsurveyed_clients(run.config, learned)
            write_unseen(run.folder, choice.label, evaluated, weights, ridge, scored)
        used = {} if personalised is None else {"personalised": personalised.test}
        if mixes:
            used["final"] = final.test
        return {name: evaluated.prediction_rows(test) for name, test in used.items()}


def _personalised_predictions(
    run: Run, choice: MethodChoice, federation: Federation, state: State
) -> Predictions | None:
    """Write the personalised models, one file each, and return their predictions; None: no model.

    Vehicles fine-tune the final model, or the one that the method gave each of them. Of a lazy
    fleet only those that are evaluated do.
    """
    if not (run.config.personalisation.enabled or choice.method.personalised):
        return None
    evaluated = federation.evaluated

    def write(model: PersonalisedModel) -> None:
        name = evaluated.fleet.name(model.vehicle)
        seed = evaluated.seeds[model.run]
        write_personalised(
            personalised_file(run.folder, choice.label, seed, name), evaluated, model
        )

    models = federation.personalised_models(choice.method, state)
    numbers = federation.members.evaluated if evaluated is not federation else None

    def initial(seed: int, places: Sequence[int]) -> Tensor:
        return models(seed, places if numbers is None else [numbers[k] for k in places])

    return personalise(
        evaluated,
        state.final_weights,
        run.config.personalisation,
        keep=write,
        initial=initial if choice.method.personalised else None,
    )


def federation_for(
    config: RunConfig,
    choice: MethodChoice,
    fleet: Fleet,
    model: str | Network | None = None,
) -> Federation:
    """Return the federation in which a method of the run trains.

    Its network is that of the configuration, unless a `model` is given.
    """
    return Federation(
        fleet,
        config.model.on(fleet) if model is None else model,
        training=choice.training(config.training),
        availability=config.availability,
        asynchronous=config.asynchronous,
        seeds=config.seeds,
        device=config.device,
    )
