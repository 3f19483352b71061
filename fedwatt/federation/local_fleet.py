"""Vehicles whose windows are on this machine, and the model that they train.

In a simulation that is the whole fleet, on the road the one vehicle.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedwatt.engine.batches import Batches
from fedwatt.engine.call import Call
from fedwatt.engine.device import resolve_device
from fedwatt.engine.pool import ChangingPool, Pool, Windows, pool_fleet
from fedwatt.errors import SettingError
from fedwatt.federation.evaluate import error_rows, predict, vehicle_errors
from fedwatt.federation.members import Members
from fedwatt.federation.records import Evaluation, Row
from fedwatt.federation.terms import Terms
from fedwatt.metrics import ErrorSums
from fedwatt.models import Model, ModuleModel, get_loss, get_model
from fedwatt.models.custom import made
from fedwatt.windows import Fleet

Network = Model | nn.Module | Callable[..., Model | nn.Module]
"""A network, or a class or function that makes one of `window` and `features`."""


@dataclass(frozen=True, eq=False)
class Ahead:
    """A round as it will be if the runs `at_work` and the vehicles `available` stay the same."""

    round: int
    at_work: list[int]
    available: Tensor
    """[R, K]"""
    calls: list[Call]
    stack: list[Call]
    """Those who train, in the order of their stack."""
    batches: Batches | None
    """Of the stack; None: nobody trains."""


class LocalFleet:
    """Windows on a device, a model, and the terms on which it is trained."""

    def __init__(
        self,
        fleet: Fleet,
        model: str | Network,
        terms: Terms,
        *,
        device: str = "auto",
        scratch: Path | None = None,
    ) -> None:
        self.fleet = fleet
        self.terms = terms
        self.dtype = terms.dtype
        self.seeds = terms.seeds
        self.training = terms.training
        self.availability = terms.availability
        self.model = fitting_model(model, fleet)
        self.model_asked = model
        """As it was given: a name, or the network itself, or what makes it."""
        self.loss = get_loss(terms.training.loss)
        self.device = resolve_device(device)
        self.members = Members(fleet, terms.training.evaluate_vehicles)
        self.ahead: Ahead | None = None
        """The next round, where it was worked out while this one trained."""
        self.scratch = scratch
        """Folder for what vehicles remember where that is too much; None: a temporary file."""

    @cached_property
    def pool(self) -> Pool:
        """The fleet's series on the device."""
        return pool_fleet(self.fleet, device=self.device, dtype=self.dtype)

    def share_pool(self, other: "LocalFleet") -> None:
        """Work on the series that another holder of the same fleet has on the device."""
        if not self.fleet.on_demand:
            self.__dict__["pool"] = other.pool

    @cached_property
    def _changing(self) -> ChangingPool:
        return ChangingPool(self.device, self.dtype)

    def held(self, vehicles: Sequence[int]) -> tuple[Pool, list[int]]:
        """Return a pool with the series of these vehicles, and the place of each in it."""
        if self.fleet.on_demand:
            return self._changing.hold(self.fleet, vehicles)
        return self.pool, list(vehicles)

    def release(self) -> None:
        """Give back the memory of series that were read from files."""
        if not self.fleet.on_demand:
            self.pool.release()

    @cached_property
    def evaluated(self) -> "LocalFleet":
        """The vehicles that finished models are evaluated by, all at hand.

        That is the whole fleet; of one whose vehicles are made on demand, those that are evaluated.
        """
        if not self.fleet.on_demand:
            return self
        clients = self.fleet.fetch(self.members.evaluated, stay=True)
        fleet = Fleet(tuple(clients), self.fleet.settings, self.fleet.source)
        training = replace(self.terms.training, evaluate_vehicles=0)
        terms = replace(self.terms, training=training)
        return LocalFleet(fleet, self.model, terms, device=str(self.device))

    @cached_property
    def _evaluation_windows(self) -> tuple[Windows, Windows]:
        """(validation, test) windows of the vehicles that are evaluated."""
        pool = self.pool
        evaluated = self.members.evaluated
        if len(evaluated) == len(self.fleet.clients):
            return pool.validation, pool.test
        return pool.validation.of(evaluated), pool.test.of(evaluated)

    def evaluate(self, weights: Tensor) -> list[Evaluation]:
        """Errors of R models, `weights` [R, D], on validation and test windows of vehicles."""
        population = len(self.members.population)
        if self.fleet.on_demand:
            return [
                replace(evaluation, of=population)
                for evaluation in self.evaluated.evaluate(weights)
            ]
        clients = [self.fleet.clients[k] for k in self.members.evaluated]
        weights = weights[:, : self.model.layout.size]
        validation, test = self._evaluation_windows
        validated = predict(self.model, weights, self.pool, validation)
        tested = predict(self.model, weights, self.pool, test)
        return [
            Evaluation(
                vehicle_errors(clients, "validation", validation, validated[run]),
                vehicle_errors(clients, "test", test, tested[run]),
                population,
            )
            for run in range(len(weights))
        ]

    def vehicle_sums(self, vehicle: int, weights: Tensor) -> tuple[ErrorSums, ErrorSums]:
        """Errors of the model `weights` [D] on validation and test windows of one vehicle."""
        if self.fleet.on_demand:
            return self.evaluated.vehicle_sums(self.members.evaluated.index(vehicle), weights)
        run_weights = weights[None, : self.model.layout.size]
        clients = [self.fleet.clients[vehicle]]
        sums = []
        for split, windows in (("validation", self.pool.validation), ("test", self.pool.test)):
            some = windows.of([vehicle])
            predicted = predict(self.model, run_weights, self.pool, some)[0]
            sums += vehicle_errors(clients, split, some, predicted)
        return sums[0], sums[1]

    def vehicle_rows(self, weights: Tensor) -> list[Row]:
        """Test errors of each run's model, `weights` [R, D], by evaluated vehicle and stratum."""
        if self.fleet.on_demand:
            return self.evaluated.vehicle_rows(weights)
        weights = weights[:, : self.model.layout.size]
        return self.prediction_rows(predict(self.model, weights, self.pool, self.pool.test))

    def prediction_rows(self, predictions: NDArray[np.float64]) -> list[Row]:
        """Test errors by vehicle and stratum of each run's scaled predictions [R, W]."""
        return error_rows(self.fleet.clients, self.pool.test, self.seeds, predictions)


def fitting_model(model: str | Network, fleet: Fleet) -> Model:
    """Return the model by its name or as it is; SettingError if it cannot read the fleet's
    windows.
    """
    window = fleet.window
    features = len(fleet.features)
    if isinstance(model, str):
        model = get_model(model, window=window, features=features)
    elif isinstance(model, nn.Module):
        model = ModuleModel(model)
    elif not isinstance(model, Model):
        model = made(getattr(model, "__qualname__", str(model)), model, window, features)
    fault = model.input_fault(fleet.window, len(fleet.features))
    if fault:
        raise SettingError(
            f"{type(model).__name__} cannot read the windows of the fleet '{fleet.source}', "
            f"{fleet.window} samples by {len(fleet.features)} features: {fault}."
        )
    return model
