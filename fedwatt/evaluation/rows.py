"""Baselines of a run, as rows of its table of baselines.

No choice looks at a test window: learning rates, stopping points, ridge strengths, features and the
local-only model are those of the lowest validation error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fedwatt.evaluation.finetune import Personalisation
from fedwatt.evaluation.linear import LinearBaseline, mean_baseline, ridge_baseline
from fedwatt.evaluation.networks import Selected, centralised_network, local_networks
from fedwatt.federation import LocalFleet
from fedwatt.federation.evaluate import error_rows
from fedwatt.federation.records import Row
from fedwatt.telemetry.trip import FloatArray, IntArray

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


def baseline_vehicles(fleet: LocalFleet) -> list[int]:
    """Return the numbers of the vehicles that baselines are computed for."""
    clients = fleet.fleet.clients
    return [k for k in fleet.fleet.sample(MOST_VEHICLES) if not clients[k].held_out]


def baseline_rows(
    fleet: LocalFleet,
    share: float,
    *,
    alone: Sequence[LocalFleet] = (),
    personalisation: Personalisation | None = None,
    whole: bool = True,
    on_done: Callable[[str], None] = lambda name: None,
) -> list[Row]:
    """Return test errors of all baselines by vehicle and stratum.

    `share` is the part of the rounds in which a vehicle trains, `personalised` the fine-tuning
    after them. `alone` are the same vehicles with the features that each could have by itself,
    such as climb in the elevation map that it learned alone; by default `fleet` itself. Where the
    `whole` fleet is not here but a sample of it, there is no centralised network.
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
        [ridge_baseline([own.fleet.clients[k] for own in feature_sets]) for k in vehicles]
    )
    rows += rows_of("ridge", ridge.test)
    network = local_networks(feature_sets, vehicles, share, personalisation)
    rows += rows_of("network", network.test)
    local = lowest_validation_error([mean, ridge, network], windows.offsets)
    rows += rows_of(LOCAL_ONLY, local.test)
    if whole:
        rows += rows_of("pooled", centralised_network(fleet, vehicles, share))
    return rows


def joined(baselines: Sequence[LinearBaseline]) -> Selected:
    """Return the baselines of all vehicles as those of one run."""
    test = np.concatenate([own.test for own in baselines])
    return Selected(test[None], np.array([[own.validation_error for own in baselines]]))


def lowest_validation_error(models: Sequence[Selected], offsets: IntArray) -> Selected:
    """Return for each run and vehicle the model with the lowest validation error.

    Models of one run count for all runs; `offsets` [K + 1] separate the vehicles' test windows.
    """
    runs = max(len(own.test) for own in models)
    tests = [np.broadcast_to(own.test, (runs, own.test.shape[1])) for own in models]
    errors = np.array(
        [np.broadcast_to(own.validation_error, (runs, len(offsets) - 1)) for own in models]
    )
    best = errors.argmin(axis=0)
    test = np.empty(tests[0].shape)
    for run, vehicle in np.ndindex(best.shape):
        where = slice(offsets[vehicle], offsets[vehicle + 1])
        test[run, where] = tests[best[run, vehicle]][run, where]
    return Selected(test, errors.min(axis=0))
