"""Baselines without federation: mean, ridge and network of each vehicle, and one on pooled data.

- *Mean* and *ridge* are linear in the means of the features over a window,

      ŷ = b + Σ_f β_f x̄_f,   β = (XᵀX + λ n I)⁻¹ Xᵀy        (X, y centred; n training windows)

  with the λ of the lowest error on the vehicle's validation windows; numpy and sums are enough.
- *Local-only network*: a vehicle takes the steps that it would take in the federation, those of C·T
  rounds (to the nearest whole number, at least one), at each of `RATES` times the learning rate of
  these rounds, and keeps the model with the lowest error on its own validation windows. Where
  vehicles of the federation fine-tune, a local-only vehicle fine-tunes its network with the same
  candidates.
- *Centralised network*: one network takes the steps of all vehicles together, on batches of all
  their windows, and is chosen by the mean validation error of the vehicles.

The networks have the federation's architecture and begin with its initial models. Learning rate and
stopping point are chosen on validation windows; test windows are only predicted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedwatt.engine.batches import Batches, Draw
from fedwatt.engine.job import Job
from fedwatt.engine.pool import Pool
from fedwatt.engine.together import train
from fedwatt.evaluation.finetune import Personalisation, personalised_models
from fedwatt.federation import Federation
from fedwatt.federation.evaluate import error_rows, predict, predictions_of, validation_error
from fedwatt.federation.records import Row
from fedwatt.methods.method import Method
from fedwatt.randomness import generator
from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows import Client
from fedwatt.windows.splits import window_means

STACK = 128
"""Models trained together; bounds memory whatever the size of the fleet."""
LOCAL = -2
CENTRALISED = -3
"""Round numbers of the batches: separate streams, apart from every round's."""
RATES = (3.0, 1.0, 1 / 3)
"""Candidate learning rates, relative to the run's."""
CHECKS = 10
"""Validation checks on the way to the last step."""


@dataclass(frozen=True, eq=False)
class Selected:
    """Models that K vehicles selected on their validation windows, in R runs.

    test                float64 [R, W]: scaled predictions of the vehicles' test windows
    validation_error    float64 [R, K]: mean squared error of the scaled validation windows
    """

    test: FloatArray
    validation_error: FloatArray


@dataclass(frozen=True, eq=False)
class _Candidates:
    """The best local-only networks of one feature set: weights [R, K, D] and errors [R, K]."""

    fleet: Federation
    weights: Tensor
    validation_error: FloatArray


def local_networks(
    feature_sets: Sequence[Federation],
    vehicles: Sequence[int],
    share: float,
    personalisation: Personalisation | None = None,
) -> Selected:
    """Train a network in each of K vehicles on its own windows only.

    `feature_sets` are the same vehicles with different features, from which each vehicle chooses.
    `share` is the part of the rounds in which a vehicle trains, `personalisation` the fine-tuning
    that vehicles of the federation do (None: none).
    """
    candidates = [_best_local(fleet, vehicles, share) for fleet in feature_sets]
    if personalisation is not None and personalisation.enabled:
        winner = _lowest(candidates)
        candidates = [
            _fine_tuned(
                models, vehicles, personalisation, np.flatnonzero((winner == number).any(axis=0))
            )
            for number, models in enumerate(candidates)
        ]
    winner = _lowest(candidates)
    tests = feature_sets[0].pool.test.of(vehicles)
    runs = len(feature_sets[0].seeds)
    predictions = np.zeros((runs, len(tests.starts)))
    errors = np.zeros((runs, len(vehicles)))
    for run, place in np.ndindex(errors.shape):
        chosen = candidates[winner[run, place]]
        windows = chosen.fleet.pool.test.of([vehicles[place]])
        where = slice(tests.offsets[place], tests.offsets[place + 1])
        weights = chosen.weights[run, place][None]
        predictions[run, where] = predict(chosen.fleet.model, weights, chosen.fleet.pool, windows)
        errors[run, place] = chosen.validation_error[run, place]
    return Selected(predictions, errors)


def _lowest(candidates: Sequence[_Candidates]) -> IntArray:
    """Return the number of the feature set with the lowest validation error, [R, K]."""
    lowest: IntArray = np.argmin([models.validation_error for models in candidates], axis=0)
    return lowest


def _best_local(fleet: Federation, vehicles: Sequence[int], share: float) -> _Candidates:
    """Return each vehicle's best network over learning rates and validation checks."""
    runs = len(fleet.seeds)
    best = initial_models(fleet)[:, None].repeat(1, len(vehicles), 1)
    lowest = np.full((runs, len(vehicles)), np.inf)
    for rows, weights in _trained_locally(fleet, vehicles, share):
        for (run, place, _), candidate in zip(rows, weights, strict=True):
            error = validation_error(fleet.model, candidate, fleet.pool, vehicles[place])
            if error < lowest[run, place]:
                lowest[run, place] = error
                best[run, place] = candidate
    return _Candidates(fleet, best, lowest)


def _trained_locally(
    fleet: Federation, vehicles: Sequence[int], share: float
) -> Iterator[tuple[list[tuple[int, int, float]], Tensor]]:
    """Yield weights [P, D] at every check, with (run, place in `vehicles`, factor) of each row."""
    members = fleet.members
    terms = fleet.terms
    steps = [terms.steps(members.windows(k), terms.speed(0, members.name(k))) for k in vehicles]
    rows = [
        (run, place, factor)
        for place in sorted(range(len(vehicles)), key=lambda place: -steps[place])
        for run in range(len(fleet.seeds))
        for factor in RATES
        if steps[place]
    ]
    rounds = max(1, round(share * terms.training.rounds))
    for first in range(0, len(rows), STACK):
        stack = rows[first : first + STACK]
        draws = [
            Draw(
                fleet.seeds[run],
                LOCAL,
                members.name(vehicles[place]),
                windows=members.windows(vehicles[place]),
                end=steps[place],
                batch=terms.training.batch,
            )
            for run, place, _ in stack
        ]
        begin = initial_models(fleet)[[run for run, _, _ in stack]]
        numbers = [vehicles[place] for _, place, _ in stack]
        factors = begin.new_tensor([[factor] for _, _, factor in stack])

        def learning_rate(turn: int, factors: Tensor = factors) -> Tensor:
            return factors * terms.learning_rate(int(turn / share))

        for weights in _checked(fleet, fleet.pool, begin, numbers, draws, rounds, learning_rate):
            yield stack, weights


def _fine_tuned(
    candidates: _Candidates, vehicles: Sequence[int], settings: Personalisation, places: IntArray
) -> _Candidates:
    """Fine-tune the networks of the vehicles at some `places`, as the federation's are."""
    if not len(places):
        return candidates
    fleet = candidates.fleet
    weights = candidates.weights.clone()
    errors = candidates.validation_error.copy()
    place_of = {vehicles[place]: place for place in places.tolist()}

    def begin(run: int, stack: Sequence[int]) -> Tensor:
        return candidates.weights[run, [place_of[vehicle] for vehicle in stack]]

    tuned = personalised_models(fleet, weights[:, 0], settings, list(place_of), begin)
    for model in tuned:
        if model.steps:
            place = place_of[model.vehicle]
            weights[model.run, place] = model.weights
            errors[model.run, place] = validation_error(
                fleet.model, model.weights, fleet.pool, model.vehicle
            )
    return _Candidates(fleet, weights, errors)


def centralised_network(fleet: Federation, vehicles: Sequence[int], share: float) -> FloatArray:
    """Return the scaled test predictions [R, W] of one network, trained on all windows in one
    place.
    """
    pool = fleet.pool
    terms = fleet.terms
    members = fleet.members
    population = members.population.tolist()
    every = pool.train.of(population)
    together = replace(every, offsets=np.array([0, len(every.starts)]))
    one_place = replace(pool, train=together)
    steps = sum(terms.steps(members.windows(k), 1.0) for k in population)
    steps = max(1, round(share * steps))
    rows = [(run, factor) for run in range(len(fleet.seeds)) for factor in RATES]
    draws = [
        Draw(
            fleet.seeds[run],
            CENTRALISED,
            "",
            windows=len(every.starts),
            end=steps,
            batch=terms.training.batch,
        )
        for run, _ in rows
    ]
    best = initial_models(fleet)
    lowest = np.full(len(fleet.seeds), np.inf)
    factors = best.new_tensor([[factor] for _, factor in rows])

    def learning_rate(turn: int) -> Tensor:
        return factors * terms.learning_rate(turn)

    begin = best[[run for run, _ in rows]]
    numbers = [0] * len(rows)
    rounds = terms.training.rounds
    for weights in _checked(fleet, one_place, begin, numbers, draws, rounds, learning_rate):
        for (run, _), candidate in zip(rows, weights, strict=True):
            errors = [validation_error(fleet.model, candidate, pool, k) for k in vehicles]
            if (error := float(np.mean(errors))) < lowest[run]:
                lowest[run] = error
                best[run] = candidate
    return predict(fleet.model, best, pool, pool.test.of(vehicles))


def initial_models(fleet: Federation) -> Tensor:
    """Return the models that the federation begins with, [R, D]."""
    model = fleet.model
    initial = [model.initial(generator(seed, "initial model")) for seed in fleet.seeds]
    return torch.stack(initial).to(fleet.device, fleet.dtype)


def _checked(
    fleet: Federation,
    pool: Pool,
    weights: Tensor,
    vehicles: Sequence[int],
    draws: Sequence[Draw],
    rounds: int,
    learning_rate: Callable[[int], Tensor],
) -> Iterator[Tensor]:
    """Take plain gradient steps, `rounds` times those of `draws`; yield [P, D] at every check."""
    ends = np.ceil(np.linspace(0, rounds, min(CHECKS, rounds) + 1)[1:])
    checks = set(ends.astype(int).tolist())
    here = weights.clone()
    for turn in range(rounds):
        part = [replace(draw, begin=turn * draw.end, end=(turn + 1) * draw.end) for draw in draws]
        batches = Batches(pool, vehicles, part)
        here = here + train(
            Job((), (), fleet.model, fleet.loss, here, learning_rate(turn), batches)
        )
        if turn + 1 in checks:
            yield here


STRENGTHS = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Candidates of λ; features are scaled."""


class LinearBaseline(NamedTuple):
    """Scaled predictions of a vehicle's test windows [W], and the validation error behind them."""

    test: FloatArray
    validation_error: float
    """Mean squared error of the scaled validation windows."""


def mean_baseline(client: Client) -> LinearBaseline:
    """Predict the mean training label for every window."""
    mean = client.as_recorded().labels["train"].mean(dtype=np.float64)
    test = np.full(len(client.ends["test"]), mean)
    return LinearBaseline(test, _mean_square(client.labels["validation"] - mean))


def ridge_baseline(feature_sets: Sequence[Client]) -> LinearBaseline:
    """Predict by the vehicle's ridge.

    `feature_sets` are the same vehicle with different features. Features and λ are those of the
    lowest validation error.
    """
    best = LinearBaseline(mean_baseline(feature_sets[0]).test, np.inf)
    for client in (features.as_recorded() for features in feature_sets):
        x = {split: feature_means(client, split) for split in client.ends}
        y = {split: client.labels[split].astype(np.float64) for split in client.ends}
        centre = x["train"].mean(axis=0)
        level = y["train"].mean()
        covariance = np.cov(x["train"].T, bias=True).reshape(len(centre), -1)
        values, vectors = np.linalg.eigh(covariance)
        slope = vectors.T @ ((x["train"] - centre).T @ (y["train"] - level)) / len(y["train"])
        for strength in STRENGTHS:
            beta = vectors @ (slope / (values + strength))
            predicted = {split: (x[split] - centre) @ beta + level for split in x}
            error = _mean_square(predicted["validation"] - y["validation"])
            if error < best.validation_error:
                best = LinearBaseline(predicted["test"], error)
    return best


def _mean_square(errors: FloatArray) -> float:
    return float(np.mean(errors.astype(np.float64) ** 2))


def feature_means(client: Client, split: str) -> FloatArray:
    """Return the mean of every feature over each window of a split, [W, features]."""
    ends = client.ends[split]
    columns = (window_means(column, ends, length=client.window) for column in client.series.T)
    return np.stack(list(columns), axis=1)


MOST_VEHICLES = 200
"""Vehicles of a large fleet that baselines are computed for, always the same ones."""
NO_SEED = 0
"""Seed of baselines that do not depend on a seed."""


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """Settings of the baselines: models of the same vehicles without federation."""

    enabled: bool = True
    """`--no-baselines` says no."""


@dataclass(frozen=True)
class Baseline:
    """A model that is not federated."""

    title: str
    alone: bool = True
    """Whether a vehicle can have it by itself; otherwise data must be pooled."""
    seeded: bool = False
    """Whether it depends on the seed."""


LOCAL_ONLY = "local"
"""The baseline that a federated model is compared with."""
WITHOUT_ELEVATION = "level"
"""The first method, trained without climb: the stage before elevation (`federated_rows`)."""
REFERENCES = {
    "mean": Baseline("local-only mean"),
    "ridge": Baseline("local-only ridge"),
    "network": Baseline("local-only network", seeded=True),
    LOCAL_ONLY: Baseline("local-only, best of these by validation", seeded=True),
    "pooled": Baseline(
        "centralised network (needs pooled data, only possible in a simulation)",
        alone=False,
        seeded=True,
    ),
    WITHOUT_ELEVATION: Baseline("federated network without elevation", alone=False, seeded=True),
}
"""By the name that they have in the table of baselines."""


def baseline_vehicles(fleet: Federation) -> list[int]:
    """Return the places in the fleet of the vehicles with baselines."""
    clients = fleet.fleet.clients
    return [k for k in fleet.fleet.sample(MOST_VEHICLES) if not clients[k].held_out]


def baseline_rows(
    fleet: Federation,
    share: float,
    *,
    alone: Sequence[Federation] = (),
    personalisation: Personalisation | None = None,
    pooled: bool = True,
    on_done: Callable[[str], None] = lambda name: None,
) -> list[Row]:
    """Return test errors of all baselines by vehicle and stratum.

    `share` is the part of the rounds in which a vehicle trains, `personalisation` the fine-tuning
    after them. `alone` are the same vehicles with the features that each could have by itself, such
    as climb in the elevation map that it learned alone; by default `fleet` itself. Unless
    `pooled`, as where only a sample is at hand, there is no centralised network.
    """
    clients = fleet.fleet.clients
    feature_sets = tuple(alone) or (fleet,)
    vehicles = baseline_vehicles(fleet)
    windows = fleet.pool.test.of(vehicles)

    def rows_of(name: str, test: FloatArray) -> list[Row]:
        seeds = fleet.seeds if REFERENCES[name].seeded else (NO_SEED,)
        errors = error_rows([clients[k] for k in vehicles], windows, seeds, test)
        on_done(name)
        return [{"reference": name, **row} for row in errors]

    mean = joined([mean_baseline(clients[k]) for k in vehicles])
    rows = rows_of("mean", mean.test)
    ridge = joined(
        [ridge_baseline([features.fleet.clients[k] for features in feature_sets]) for k in vehicles]
    )
    rows += rows_of("ridge", ridge.test)
    network = local_networks(feature_sets, vehicles, share, personalisation)
    rows += rows_of("network", network.test)
    local = lowest_validation_error([mean, ridge, network], windows.offsets)
    rows += rows_of(LOCAL_ONLY, local.test)
    if pooled:
        rows += rows_of("pooled", centralised_network(fleet, vehicles, share))
    return rows


def federated_rows(name: str, fleet: Federation, method: Method) -> list[Row]:
    """Train a method and return the test errors of its final model as those of a baseline."""
    state = fleet.train(method).state
    evaluated = fleet.evaluated
    test = predictions_of(evaluated.model, state.final_weights, evaluated.pool).test
    return [{"reference": name, **row} for row in evaluated.prediction_rows(test)]


def joined(baselines: Sequence[LinearBaseline]) -> Selected:
    """Return the baselines of all vehicles as those of one run."""
    test = np.concatenate([model.test for model in baselines])
    return Selected(test[None], np.array([[model.validation_error for model in baselines]]))


def lowest_validation_error(models: Sequence[Selected], offsets: IntArray) -> Selected:
    """Return for each run and vehicle the model with the lowest validation error.

    Models of one run count for all runs; `offsets` [K + 1] separate the vehicles' test windows.
    """
    runs = max(len(model.test) for model in models)
    tests = [np.broadcast_to(model.test, (runs, model.test.shape[1])) for model in models]
    errors = np.array(
        [np.broadcast_to(model.validation_error, (runs, len(offsets) - 1)) for model in models]
    )
    best = errors.argmin(axis=0)
    test = np.empty(tests[0].shape)
    for run, vehicle in np.ndindex(best.shape):
        where = slice(offsets[vehicle], offsets[vehicle + 1])
        test[run, where] = tests[best[run, vehicle]][run, where]
    return Selected(test, errors.min(axis=0))
