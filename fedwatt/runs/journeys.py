"""What a run leaves for journeys: mixtures with ridges, and what trips usually teach.

RUN/fleet_ridge.json    the fleet's ridge, where `model.mixture` is on (`journeys.ridge`)
RUN/trip_prior.json     by method, how a trip's residuals usually hang together (`journeys.prior`)

Both are made of sums over vehicles. A vehicle's own ridge and its weights are not here: whoever has
its trips works them out again, as `fedwatt export` does.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from fedwatt.elevation.level import Predictions
from fedwatt.errors import RunError
from fedwatt.federation import LocalFleet
from fedwatt.files import parse_json, write_text
from fedwatt.journeys.filter import TripPrior
from fedwatt.journeys.mixture import chosen_mixture, fleet_ridge, vehicle_ridges
from fedwatt.journeys.prior import fitted_prior, residual_sums
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows import Client

RIDGE_FILE: Final = "fleet_ridge.json"
PRIOR_FILE: Final = "trip_prior.json"


def mixed_predictions(federation: LocalFleet, network: Predictions) -> Predictions:
    """What vehicles predict with mixtures of these networks' predictions and their ridges."""
    clients, pool = federation.fleet.clients, federation.pool
    fleet = fleet_ridge(clients)
    validation, test = network.validation.copy(), network.test.copy()
    for vehicle, client in enumerate(clients):
        ridges = vehicle_ridges(client, fleet)
        judged, tested = (
            slice(*windows.offsets[vehicle : vehicle + 2])
            for windows in (pool.validation, pool.test)
        )
        for run in range(len(validation)):
            mixture = chosen_mixture(client, ridges, network.validation[run, judged])
            for own, split, rows in (
                (validation, "validation", judged),
                (test, "test", tested),
            ):
                own[run, rows] = mixture.predict(client, split, own[run, rows])
    return Predictions(validation, test)


def write_fleet_ridge(run: Path, clients: Sequence[Client]) -> None:
    """The fleet's ridge as one file of the run."""
    found = {"features": list(clients[0].features), "beta": fleet_ridge(clients).tolist()}
    write_text(run / RIDGE_FILE, json.dumps(found, indent=1) + "\n")


def read_fleet_ridge(run: Path) -> FloatArray | None:
    """The fleet's ridge [features + 1]; None where the run mixes nothing."""
    found = _read(run / RIDGE_FILE)
    return None if found is None else np.array(found["beta"], dtype=np.float64)


def write_trip_prior(
    run: Path, label: str, federation: LocalFleet, predicted: Predictions, live: Sequence[int]
) -> None:
    """Add the prior of a method's models to the run's file."""
    clients, offsets = federation.fleet.clients, federation.pool.validation.offsets
    sums = [
        residual_sums(client, predicted.validation[one, offsets[k] : offsets[k + 1]])
        for one in live
        for k, client in enumerate(clients)
        if not client.held_out
    ]
    prior = fitted_prior(sums, federation.fleet.window)
    known = {**(_read(run / PRIOR_FILE) or {}), label: asdict(prior)}
    write_text(run / PRIOR_FILE, json.dumps(known, indent=1) + "\n")


def read_trip_prior(run: Path, label: str) -> TripPrior | None:
    """The prior of a method, in units of a vehicle's label scale; None where the run has none."""
    found = (_read(run / PRIOR_FILE) or {}).get(label)
    return None if found is None else TripPrior(**found)


def _read(file: Path) -> Mapping[str, Any] | None:
    if not file.is_file():
        return None
    try:
        found: Mapping[str, Any] = parse_json(file.read_text(encoding="utf-8"))
        return found
    except ValueError as problem:
        raise RunError(f"{file} is damaged: {problem}. Train the run again.") from problem
