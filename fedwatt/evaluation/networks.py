"""The run's own network without a federation: in each vehicle alone, and on all data in one place.

Both begin with the models that the federation begins with, take as many steps as it does at the
rates of its rounds, and keep what validation likes best on the way:

- *alone*, a vehicle takes the steps that it would take in the federation, those of C·T rounds (to
  the nearest whole number, at least one), stops where its own validation windows are best, and may
  take the rate or a third of it;
- *pooled*, one network takes the steps of all vehicles together, on batches of all their windows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.engine.batches import Batches, Draw
from fedwatt.engine.job import Job
from fedwatt.engine.pool import Pool
from fedwatt.engine.together import train
from fedwatt.federation import LocalFleet
from fedwatt.federation.evaluate import predict, validation_error
from fedwatt.randomness import generator
from fedwatt.telemetry.trip import FloatArray

STACK: Final = 128
"""Models trained together; bounds memory whatever the size of the fleet."""
ALONE, POOLED = -2, -3
"""Round numbers of the batches: streams of their own, apart from every round's."""
RATES: Final = (1.0, 1 / 3)
"""Shares of the run's rate that a vehicle may choose from."""
LOOKS: Final = 5
"""How often validation is looked at on the way."""


def alone_predictions(
    candidates: Sequence[LocalFleet], vehicles: Sequence[int], share: float
) -> FloatArray:
    """Scaled predictions [R, W] of each vehicle's own network on its test windows.

    `candidates` are the same vehicles with different features; a vehicle takes what its validation
    windows like best. `share` is the part of the rounds in which a vehicle trains.
    """
    first = candidates[0]
    runs, tests = len(first.seeds), first.pool.test.of(vehicles)
    predictions = np.zeros((runs, len(tests.starts)))
    lowest = np.full((runs, len(vehicles)), np.inf)
    for fleet in candidates:
        for factor in RATES:
            for rows, weights in _alone(fleet, vehicles, share, factor):
                for (run, place), own in zip(rows, weights, strict=True):
                    error = validation_error(fleet.model, own, fleet.pool, vehicles[place])
                    if error < lowest[run, place]:
                        lowest[run, place] = error
                        where = slice(tests.offsets[place], tests.offsets[place + 1])
                        windows = fleet.pool.test.of([vehicles[place]])
                        predictions[run, where] = predict(
                            fleet.model, own[None], fleet.pool, windows
                        )[0]
    return predictions


def _alone(
    fleet: LocalFleet, vehicles: Sequence[int], share: float, factor: float
) -> Iterator[tuple[list[tuple[int, int]], Tensor]]:
    """Weights [P, D] at every look, with (run, place in `vehicles`) of each row."""
    members, terms = fleet.members, fleet.terms
    steps = [terms.steps(members.windows(k), terms.speed(0, members.name(k))) for k in vehicles]
    pairs = [(run, place) for run in range(len(fleet.seeds)) for place in range(len(vehicles))]
    pairs.sort(key=lambda pair: -steps[pair[1]])
    rounds = max(1, round(share * terms.training.rounds))
    for first in range(0, len(pairs), STACK):
        stack = [pair for pair in pairs[first : first + STACK] if steps[pair[1]]]
        if not stack:
            continue
        draws = [
            Draw(
                fleet.seeds[run],
                ALONE,
                members.name(vehicles[place]),
                windows=members.windows(vehicles[place]),
                end=steps[place],
                batch=terms.training.batch,
            )
            for run, place in stack
        ]
        begin = initial_models(fleet)[[run for run, _ in stack]]
        numbers = [vehicles[place] for _, place in stack]

        def rate(turn: int) -> float:
            return factor * terms.rate(int(turn / share))

        for weights in _looked_at(fleet, fleet.pool, begin, numbers, draws, rounds, rate):
            yield stack, weights


def pooled_predictions(fleet: LocalFleet, vehicles: Sequence[int], share: float) -> FloatArray:
    """Scaled predictions [R, W] of one network, trained on all windows in one place."""
    pool, terms, members = fleet.pool, fleet.terms, fleet.members
    population = members.population.tolist()
    every = pool.train.of(population)
    together = replace(every, offsets=np.array([0, len(every.starts)]))
    one = replace(pool, train=together)
    steps = sum(terms.steps(members.windows(k), 1.0) for k in population)
    steps = max(1, round(share * steps))
    draws = [
        Draw(seed, POOLED, "", windows=len(every.starts), end=steps, batch=terms.training.batch)
        for seed in fleet.seeds
    ]
    best, lowest = initial_models(fleet), np.full(len(fleet.seeds), np.inf)
    for weights in _looked_at(
        fleet, one, best, [0] * len(draws), draws, terms.training.rounds, terms.rate
    ):
        for run, own in enumerate(weights):
            errors = [validation_error(fleet.model, own, pool, k) for k in vehicles]
            if (error := float(np.mean(errors))) < lowest[run]:
                best[run], lowest[run] = own, error
    return predict(fleet.model, best, pool, pool.test.of(vehicles))


def initial_models(fleet: LocalFleet) -> Tensor:
    """The models that the federation begins with, [R, D]."""
    model = fleet.model
    initial = [model.initial(generator(seed, "initial model")) for seed in fleet.seeds]
    return torch.stack(initial).to(fleet.device, fleet.dtype)


def _looked_at(
    fleet: LocalFleet,
    pool: Pool,
    weights: Tensor,
    vehicles: Sequence[int],
    draws: Sequence[Draw],
    rounds: int,
    rate: Callable[[int], float],
) -> Iterator[Tensor]:
    """Plain gradient steps, `rounds` times those of `draws`; weights [P, D] at every look."""
    looks = set(np.ceil(np.linspace(0, rounds, min(LOOKS, rounds) + 1)[1:]).astype(int).tolist())
    here = weights.clone()
    for turn in range(rounds):
        part = [replace(draw, begin=turn * draw.end, end=(turn + 1) * draw.end) for draw in draws]
        batches = Batches(pool, vehicles, part)
        here = here + train(Job((), (), fleet.model, fleet.loss, here, rate(turn), batches))
        pool.release()
        if turn + 1 in looks:
            yield here
