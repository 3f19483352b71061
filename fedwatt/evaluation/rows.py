"""The references of a run, as rows of the table of references."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fedwatt.evaluation.linear import mean_prediction, ridge_prediction
from fedwatt.evaluation.networks import alone_predictions, pooled_predictions
from fedwatt.federation import LocalFleet
from fedwatt.federation.evaluate import error_rows
from fedwatt.federation.records import Row
from fedwatt.telemetry.trip import FloatArray

MOST_VEHICLES: Final = 200
"""Vehicles of a large fleet that references are taken from, always the same ones."""
NO_SEED: Final = 0
"""Seed of references in which chance plays no part."""


@dataclass(frozen=True, kw_only=True)
class References:
    """Whether a run is accompanied by what its vehicles would have without federating."""

    enabled: bool = True
    """`--no-references` says no."""


@dataclass(frozen=True)
class Reference:
    """A model that is not federated."""

    title: str
    alone: bool = True
    """Whether a vehicle can have it by itself; otherwise data must be pooled."""
    seeded: bool = False
    """Whether it depends on the seed."""


REFERENCES: Final = {
    "mean": Reference("own mean"),
    "ridge": Reference("own ridge on window means"),
    "network": Reference("own network, alone for the same steps", seeded=True),
    "pooled": Reference(
        "pooled network (needs pooled data, only possible in a simulation)",
        alone=False,
        seeded=True,
    ),
}
"""By the name that they have in the table of references."""


def reference_rows(
    fleet: LocalFleet,
    share: float,
    *,
    alone: Sequence[LocalFleet] = (),
    whole: bool = True,
    on_done: Callable[[str], None] = lambda name: None,
) -> list[Row]:
    """Test errors of all references by vehicle and stratum.

    `share` is the part of the rounds in which a vehicle trains. `alone` are the same vehicles with
    what each could know by itself, such as hills that it learned alone; by default `fleet` itself.
    Where the `whole` fleet is not here but a sample of it, there is no network on pooled data.
    """
    every, candidates = fleet.fleet.clients, tuple(alone) or (fleet,)
    vehicles = [k for k in fleet.fleet.sample(MOST_VEHICLES) if not every[k].held_out]

    def own(predict: Callable[[int], FloatArray]) -> FloatArray:
        return np.concatenate([predict(k) for k in vehicles])[None]

    def ridge(vehicle: int) -> FloatArray:
        return ridge_prediction([one.fleet.clients[vehicle] for one in candidates])

    makers: dict[str, Callable[[], FloatArray]] = {
        "mean": lambda: own(lambda k: mean_prediction(every[k])),
        "ridge": lambda: own(ridge),
        "network": lambda: alone_predictions(candidates, vehicles, share),
        "pooled": lambda: pooled_predictions(fleet, vehicles, share),
    }
    if not whole:
        del makers["pooled"]
    rows: list[Row] = []
    windows, clients = fleet.pool.test.of(vehicles), [every[k] for k in vehicles]
    for name, make in makers.items():
        seeds = fleet.seeds if REFERENCES[name].seeded else (NO_SEED,)
        found = error_rows(clients, windows, seeds, make())
        rows += [{"reference": name, **row} for row in found]
        on_done(name)
    return rows
