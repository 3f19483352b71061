"""Carry out a configuration with simulated vehicles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from fedwatt.elevation.learn import Learned
from fedwatt.evaluation import PersonalisedModel, baseline_rows, personalise
from fedwatt.evaluation.rows import baseline_vehicles
from fedwatt.federation import Federation, LocalFleet, State
from fedwatt.federation.evaluate import Predictions, predictions_of
from fedwatt.federation.local_fleet import Network
from fedwatt.federation.records import Row
from fedwatt.observers import Observer, Observers, ProgressLog
from fedwatt.runs.carry_out import Run, Site, carry_out
from fedwatt.runs.config import MethodChoice, RunConfig
from fedwatt.runs.elevation import (
    data_without_elevation,
    elevation_facts,
    learned_alone,
    learned_for,
    learns_elevation,
    write_learned,
)
from fedwatt.runs.environment import fleet_partition
from fedwatt.runs.journeys import mixed_predictions, write_fleet_ridge, write_trip_prior
from fedwatt.runs.model_file import own_model_file, write_own_model
from fedwatt.runs.source import open_fleet
from fedwatt.windows import Fleet

Elsewhere = Callable[[RunConfig, Path, Fleet], None]
"""Trains the methods of a configuration on other machines and leaves their checkpoints in the run
folder."""

Dealt = Callable[[Federation, MethodChoice], Federation]
"""Gives a method a federation whose participants train in other processes."""


def execute(
    config: RunConfig,
    out: Path,
    observer: Observer,
    *,
    resume: bool = False,
    checkpoint_seconds: float = 10.0,
    elsewhere: Elsewhere | None = None,
    dealt: Dealt | None = None,
) -> None:
    """Train every method of `config` and fill the run folder `out`.

    With `resume`, what an interrupted run of the same configuration left is continued, bit for bit;
    where there is none, one begins. A checkpoint is written at most every `checkpoint_seconds` and
    whenever training stops. `elsewhere` may train methods on other machines: it leaves their
    checkpoints, and the run goes on from there. `dealt` lets the participants of every round train
    in other processes.
    """
    followed = Observers((observer, ProgressLog(out)))
    run = Run(config, out, followed, resume, checkpoint_seconds)
    carry_out(Simulation(run, elsewhere, dealt))
    followed.on_finish(out)


@dataclass
class Simulation(Site[Federation]):
    """The `Site` of a run whose vehicles are simulated in this process.

    Routes are learned when they are first asked for (`runs.routes`).
    """

    on_the_road: ClassVar[bool] = False

    run: Run
    elsewhere: Elsewhere | None = None
    dealt: Dealt | None = None
    learned: Learned | None = field(default=None, init=False)
    """The elevation maps of the vehicles; None where the run learns none."""
    opened: Fleet = field(init=False)

    def open(self) -> Fleet:
        """Learn the elevation maps that windows are made with, and build the vehicles."""
        config = self.run.config
        observer = self.run.observer
        self.learned = learned_for(config)
        if self.learned is not None:
            observer.on_elevation(self.learned, config.elevation)
        self.opened = open_fleet(config, self.learned, observer)
        return self.opened

    def fleet(self) -> Fleet:
        """Return the vehicles that the run began with."""
        return self.opened

    def hashes(self) -> dict[str, Any]:
        """Hashes of the splits (trips), the partition (vehicles, windows) and the data itself."""
        fleet = self.opened
        return {
            "splits": fleet.split_hash(),
            "partition": fleet_partition(fleet),
            "data": fleet.data_hash(),
        }

    def data_identity(self) -> str:
        """Return a hash of the data itself."""
        return self.opened.data_hash()

    def federation(self, choice: MethodChoice, *, scratch: Path | None = None) -> Federation:
        """Return the federation in which a method trains."""
        made = federation_for(self.run.config, choice, self.opened, scratch)
        return made if self.dealt is None else self.dealt(made, choice)

    def share_elevation(self) -> dict[str, Any]:
        """Write the published elevation map; methods may then train elsewhere."""
        facts: dict[str, Any] = {}
        if self.learned is not None:
            write_learned(self.run.out / "field.parquet", self.learned, self.run.config)
            contributors = len(self.learned.contributors)
            facts = elevation_facts(self.run.config, self.opened, self.learned.shared, contributors)
        if self.elsewhere is not None:
            self.elsewhere(self.run.config, self.run.out, self.opened)
        return facts

    def baselines(self) -> list[Row]:
        """Train the baselines, at learning rates around the first method's.

        An elevation map that vehicles learn together is part of federating: a local-only vehicle
        has the map that it learns from its own training trips, or none if that validates better.
        """
        config = self.run.config
        choice = self.run.config.methods[0]
        federation = federation_for(config, choice, self.opened)
        share = config.training.participation
        if config.asynchronous.buffer:
            share = min(1.0, config.asynchronous.buffer / len(federation.members.population))
        alone = []
        if learns_elevation(config):
            learners = _names(federation.evaluated)
            alone.append(open_fleet(config, learned_alone(config, learners)))
            without = data_without_elevation(config.data)
            if without is not None:
                alone.append(open_fleet(replace(config, data=without)))
        return baseline_rows(
            federation.evaluated,
            share,
            alone=[federation_for(config, choice, fleet) for fleet in alone],
            personalisation=config.personalisation,
            on_done=self.run.observer.on_baseline,
            whole=not self.opened.on_demand,
        )

    def evaluate(
        self, choice: MethodChoice, federation: Federation, state: State
    ) -> dict[str, list[Row]]:
        """Return the errors of personalised models and of mixtures with ridges."""
        personalised = _personalised_models(self.run, choice, federation, state)
        evaluated = federation.evaluated
        final_predictions = predictions_of(evaluated.model, state.final_weights, evaluated.pool)
        mixes = self.run.config.model.mixture
        if mixes:
            final_predictions = mixed_predictions(evaluated, final_predictions)
            personalised = personalised and mixed_predictions(evaluated, personalised)
            write_fleet_ridge(self.run.out, evaluated.fleet.clients)
        write_trip_prior(
            self.run.out, choice.label, evaluated, personalised or final_predictions, state.live
        )
        used = {} if personalised is None else {"personalised": personalised.test}
        if mixes:
            used["kept"] = final_predictions.test
        return {name: evaluated.prediction_rows(test) for name, test in used.items()}


def _personalised_models(
    run: Run, choice: MethodChoice, federation: Federation, state: State
) -> Predictions | None:
    """Return the models that vehicles made their own, one file each; None if they did not.

    They fine-tune the model that a method keeps, or the one that the method gave each of them. Of a
    fleet on demand only those that are evaluated do.
    """
    if not (run.config.personalisation.enabled or choice.method.personalised):
        return None

    evaluated = federation.evaluated

    def keep(personalised: PersonalisedModel) -> None:
        name = evaluated.fleet.name(personalised.vehicle)
        seed = evaluated.seeds[personalised.run]
        write_own_model(own_model_file(run.out, choice.label, seed, name), evaluated, personalised)

    models = federation.own_models(choice.method, state)
    numbers = federation.members.evaluated if evaluated is not federation else None

    def own(one: int, places: Sequence[int]) -> Tensor:
        return models(one, places if numbers is None else [numbers[k] for k in places])

    settings = run.config.personalisation
    begin = own if choice.method.personalised else None
    return personalise(evaluated, state.final_weights, settings, keep=keep, own_models=begin)


def _names(evaluated: LocalFleet) -> frozenset[str]:
    """Return the names of the vehicles that baselines are computed for."""
    return frozenset(evaluated.fleet.name(k) for k in baseline_vehicles(evaluated))


def federation_for(
    config: RunConfig,
    choice: MethodChoice,
    fleet: Fleet,
    scratch: Path | None = None,
    model: Network | None = None,
) -> Federation:
    """Return the federation in which a method of the run trains; `scratch` as in `Federation`.

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
        scratch=scratch,
    )
