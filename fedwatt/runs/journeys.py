"""The journeys part of a run: mixtures with ridges, trip priors and prediction intervals.

RUN/fleet_ridge.json    the fleet's ridge, where `model.mixture` is on (`journeys.ridge`)
RUN/trip_prior.json     by method, the sizes of a trip's residuals (`journeys.prior`)
RUN/intervals.json      by method, the scores of its vehicles (`journeys.intervals`)

All are made of sums over vehicles. A vehicle's own ridges are not here: `fedwatt export` computes
them again from its trips.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from fedwatt.errors import RunError
from fedwatt.federation import LocalFleet
from fedwatt.federation.evaluate import Predictions
from fedwatt.files import parse_json, write_text
from fedwatt.journeys.filter import TripPrior
from fedwatt.journeys.intervals import (
    Intervals,
    contribution,
    fitted_prior,
    fleet_intervals,
    fleet_means,
    residual_sums,
    score_sums,
    validation_scores,
)
from fedwatt.journeys.mixture import chosen_mixture
from fedwatt.journeys.ridge import FleetRidge, fleet_ridge
from fedwatt.windows import Client

RIDGE_FILE: Final = "fleet_ridge.json"
PRIOR_FILE: Final = "trip_prior.json"
INTERVALS_FILE: Final = "intervals.json"


def mixed_predictions(federation: LocalFleet, network: Predictions) -> Predictions:
    """Return the vehicles' predictions with mixtures of these networks' and their ridges."""
    clients = federation.fleet.clients
    pool = federation.pool
    fleet = fleet_ridge(clients)
    mixed = Predictions(network.validation.copy(), network.test.copy())
    for vehicle, client in enumerate(clients):
        validation = slice(*pool.validation.offsets[vehicle : vehicle + 2])
        test = slice(*pool.test.offsets[vehicle : vehicle + 2])
        for run in range(len(network.validation)):
            mixture = chosen_mixture(client, fleet, network.validation[run, validation])
            for values, split, rows in (
                (mixed.validation, "validation", validation),
                (mixed.test, "test", test),
            ):
                values[run, rows] = mixture.predict(client, split, values[run, rows])
    return mixed


def write_fleet_ridge(run: Path, clients: Sequence[Client]) -> None:
    """Write the fleet's ridge as one file of the run."""
    fleet = fleet_ridge(clients)
    arrays = {name: getattr(fleet, name).tolist() for name in ("unit", "mean", "spread")}
    entry = {"features": list(clients[0].features), **arrays, "noise": fleet.noise}
    write_text(run / RIDGE_FILE, json.dumps(entry, indent=1) + "\n")


def read_fleet_ridge(run: Path) -> FleetRidge | None:
    """Return the fleet's ridge; None where the run mixes nothing."""
    entry = _read(run / RIDGE_FILE)
    if entry is None:
        return None
    try:
        unit, mean, spread = (np.array(entry[name], float) for name in ("unit", "mean", "spread"))
        return FleetRidge(unit, mean, spread, float(entry["noise"]))
    except KeyError as problem:
        raise RunError(
            f"{run / RIDGE_FILE} has no {problem}: another version wrote it. Train the run again."
        ) from problem


def write_trip_prior(
    run: Path, label: str, federation: LocalFleet, predicted: Predictions, live: Sequence[int]
) -> None:
    """Add the trip prior and the intervals of a method's models to the run's files."""
    offsets = federation.pool.validation.offsets
    validated = [
        (client, predicted.validation[row, offsets[place] : offsets[place + 1]])
        for row in live
        for place, client in enumerate(federation.fleet.clients)
        if not client.held_out
    ]
    prior = fitted_prior(residual_sums(*vehicle) for vehicle in validated)
    _add(run / PRIOR_FILE, label, asdict(prior))
    vehicles = len(validated) // max(len(live), 1)
    # Of the first seed alone: a vehicle must not count several times.
    scores = [validation_scores(*vehicle, prior) for vehicle in validated[:vehicles]]
    if scores:
        means = fleet_means(map(score_sums, scores))
        intervals = fleet_intervals(contribution(vehicle, means) for vehicle in scores)
        _add(run / INTERVALS_FILE, label, intervals.to_json())


def read_trip_prior(run: Path, label: str) -> TripPrior | None:
    """Return the prior of a method, in units of the label scale; None where the run has none."""
    entry = (_read(run / PRIOR_FILE) or {}).get(label)
    return None if entry is None else TripPrior(**entry)


def read_intervals(run: Path, label: str) -> Intervals | None:
    """Return the intervals of a method; None where the run has none."""
    entry = (_read(run / INTERVALS_FILE) or {}).get(label)
    return None if entry is None else Intervals.from_json(entry)


def _add(file: Path, label: str, entry: Mapping[str, Any]) -> None:
    """Put an entry under a method's label into a file of the run."""
    content = {**(_read(file) or {}), label: entry}
    write_text(file, json.dumps(content, indent=1) + "\n")


def _read(file: Path) -> Mapping[str, Any] | None:
    if not file.is_file():
        return None
    try:
        content: Mapping[str, Any] = parse_json(file.read_text(encoding="utf-8"))
        return content
    except ValueError as problem:
        raise RunError(f"{file} is damaged: {problem}. Train the run again.") from problem
