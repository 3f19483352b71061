"""Fine-tune the global model in every vehicle, all vehicles in one stack.

A vehicle starts from the global model, or from its own where a method gives it one, takes plain
gradient steps on its own training windows at each candidate rate, looks at its own validation
windows after each candidate number of steps, and keeps the best of these and the model that it
began with. Nothing leaves the vehicle. The stack is the engine's own (`train` with no rules), so
any method's model can be made personalised. Training windows are those that were recorded: the
global model has learned from others what to do without elevation.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

import numpy as np
from torch import Tensor

from fedwatt.engine.batches import Batches, Draw
from fedwatt.engine.job import Job
from fedwatt.engine.together import train
from fedwatt.errors import check
from fedwatt.federation import Federation
from fedwatt.federation.evaluate import Predictions, predict, validation_error
from fedwatt.federation.simulated import STACK

AFTER_THE_ROUNDS = -1  # round number of the batches: a stream of its own, apart from every round's


@dataclass(frozen=True, kw_only=True)
class Personalisation:
    """Candidates of fine-tuning, from which each vehicle chooses on its validation trips."""

    enabled: bool = False
    """Whether vehicles fine-tune after the last round; `--personalise` says yes."""
    rates: tuple[float, ...] = (0.003, 0.01, 0.03)
    """Rates to try."""
    steps: tuple[int, ...] = (100, 300, 1000)
    """Numbers of steps after which the model is looked at, ascending."""
    batch: int = 64
    """Windows a step."""

    def __post_init__(self) -> None:
        rates = len(self.rates) >= 1 and all(
            0 < learning_rate < inf for learning_rate in self.rates
        )
        check(self, "rates", rates, "one or more positive numbers, such as (0.003, 0.01)")
        rising = list(self.steps) == sorted(set(self.steps)) and min(self.steps, default=0) >= 1
        check(self, "steps", rising, "one or more ascending whole numbers, such as (100, 300)")
        check(self, "batch", self.batch >= 1, "at least 1 window")


InitialModels = Callable[[int, Sequence[int]], Tensor]
"""(Run, vehicles) → the model [P, D] that each of them has already."""


@dataclass(frozen=True, eq=False)
class PersonalisedModel:
    """The personalised model of a vehicle; rate and steps are 0 where fine-tuning did not help.

    `run` and `vehicle` are places in the federation's seeds and fleet; `weights` has shape [D].
    """

    run: int
    vehicle: int
    weights: Tensor
    learning_rate: float
    steps: int


def personalise(
    federation: Federation,
    weights: Tensor,
    settings: Personalisation,
    *,
    keep: Callable[[PersonalisedModel], None] | None = None,
    initial: InitialModels | None = None,
) -> Predictions:
    """Return the predictions of global models [R, D] fine-tuned in all vehicles.

    Held-out vehicles fine-tune as well. `keep` is given each model when it is made, so that no more
    than a stack of them is in memory. With `initial` vehicles begin with those models, and without
    fine-tuning (`settings.enabled`) stay there.
    """
    model = federation.model
    pool = federation.pool
    runs = len(weights)
    every = range(len(federation.fleet.clients))
    parts = [(split, np.empty((runs, len(split.starts)))) for split in (pool.validation, pool.test)]
    for result in personalised_models(federation, weights, settings, every, initial):
        for windows, predictions in parts:
            where = slice(windows.offsets[result.vehicle], windows.offsets[result.vehicle + 1])
            predicted = predict(model, result.weights[None], pool, windows.of([result.vehicle]))
            predictions[result.run, where] = predicted[0]
        if keep is not None:
            keep(result)
    return Predictions(*(predictions for _, predictions in parts))


def personalised_models(
    federation: Federation,
    weights: Tensor,
    settings: Personalisation,
    vehicles: Sequence[int],
    initial: InitialModels | None = None,
) -> Iterator[PersonalisedModel]:
    """Yield the fine-tuned model of each vehicle and run, one stack of vehicles at a time.

    Vehicles begin with the global models, `weights` [R, D], or with their models by `initial`.
    """
    rates = settings.rates if initial is None or settings.enabled else ()
    for run in range(len(weights)):
        for first in range(0, len(vehicles), STACK):
            stack = vehicles[first : first + STACK]
            start = weights[run].expand(len(stack), -1)
            if initial is not None:
                start = initial(run, stack)
            start = start[:, : federation.model.layout.size].contiguous()
            yield from _chosen(federation, start, run, stack, settings, rates)


def _chosen(
    federation: Federation,
    anchor: Tensor,
    run: int,
    stack: Sequence[int],
    settings: Personalisation,
    rates: Sequence[float],
) -> Iterator[PersonalisedModel]:
    """Yield the best-validated model of each vehicle; fine-tuning begins at `anchor` [P, D]."""

    def error_of(weights: Tensor, vehicle: int) -> float:
        return validation_error(federation.model, weights, federation.pool, vehicle)

    best = anchor.clone()
    tuned = [(0.0, 0)] * len(stack)
    lowest = [error_of(weights, vehicle) for weights, vehicle in zip(anchor, stack, strict=True)]
    for learning_rate in rates:
        for steps, candidates in _trained(federation, anchor, run, stack, learning_rate, settings):
            for row, vehicle in enumerate(stack):
                if (error := error_of(candidates[row], vehicle)) < lowest[row]:
                    best[row], lowest[row], tuned[row] = (
                        candidates[row],
                        error,
                        (learning_rate, steps),
                    )
    for row, vehicle in enumerate(stack):
        yield PersonalisedModel(run, vehicle, best[row], *tuned[row])


def _trained(
    federation: Federation,
    anchor: Tensor,
    run: int,
    stack: Sequence[int],
    learning_rate: float,
    settings: Personalisation,
) -> Iterator[tuple[int, Tensor]]:
    """Yield the stack's weights [P, D] after each candidate number of steps at one rate."""
    pool = federation.pool
    clients = federation.fleet.clients
    draws = [
        Draw(
            federation.seeds[run],
            AFTER_THE_ROUNDS,
            clients[vehicle].name,
            windows=clients[vehicle].recorded_windows,
            end=settings.steps[-1],
            batch=settings.batch,
        )
        for vehicle in stack
    ]
    here = anchor
    for done, steps in pairwise((0, *settings.steps)):
        part = [replace(draw, begin=done, end=steps) for draw in draws]
        batches = Batches(pool, stack, part)
        job = Job((), (), federation.model, federation.loss, here, learning_rate, batches)
        here = here + train(job)
        yield steps, here
