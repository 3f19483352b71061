"""Linear baselines of a vehicle: the mean of its labels, and a ridge regression.

The ridge is linear in the means of the features over a window,

    ŷ = b + Σ_f β_f x̄_f,   β = (XᵀX + λ n I)⁻¹ Xᵀy        (X, y centred; n training windows)

with the λ of the lowest error on the vehicle's validation windows. Both need numpy alone, and sums.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from fedwatt.evaluation.finetune import Personalisation
from fedwatt.evaluation.networks import Selected, centralised_network, local_networks
from fedwatt.federation import Federation
from fedwatt.federation.evaluate import error_rows
from fedwatt.federation.records import Row
from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows import Client
from fedwatt.windows.splits import window_means

STRENGTHS: Final = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
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


MOST_VEHICLES: Final = 200
"""Vehicles of a large fleet that baselines are computed for, always the same ones."""
NO_SEED: Final = 0
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


LOCAL_ONLY: Final = "local"
"""The baseline that a federated model is compared with."""
REFERENCES: Final = {
    "mean": Baseline("local-only mean"),
    "ridge": Baseline("local-only ridge"),
    "network": Baseline("local-only network", seeded=True),
    LOCAL_ONLY: Baseline("local-only, best of these by validation", seeded=True),
    "pooled": Baseline(
        "centralised network (needs pooled data, only possible in a simulation)",
        alone=False,
        seeded=True,
    ),
}
"""By the name that they have in the table of baselines."""


def baseline_vehicles(fleet: Federation) -> list[int]:
    """Return the numbers of the vehicles that baselines are computed for."""
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
