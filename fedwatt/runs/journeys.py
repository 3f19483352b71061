"""The journeys part of a run: mixtures with ridges, trip priors, intervals and routes.

RUN/fleet_ridge.json    the fleet's ridge, where `model.mixture` is on (`journeys.ridge`)
RUN/trip_prior.json     by method, the sizes of a trip's residuals (`journeys.intervals`)
RUN/intervals.json      by method, the scores of its vehicles (`journeys.intervals`)
RUN/unseen.json         the mean scaling of its vehicles, and by method the scores that each of them
                        would have without trips of its own
RUN/routes.json         the route model of the fleet, from training and validation trips

All are made of sums over vehicles. A vehicle's own ridges are not here: `fedwatt export` computes
them again from its trips. Routes of simulated vehicles are learned when they are first needed;
deployed vehicles share them in the run, where `deploy.routes` asks for it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.learn import survey_fleet
from fedwatt.elevation.survey import mass_kg
from fedwatt.elevation.vehicle_map import vehicle_maps
from fedwatt.errors import DataError, RunError
from fedwatt.federation import Federation
from fedwatt.federation.evaluate import Predictions
from fedwatt.files import parse_json, write_bytes, write_text
from fedwatt.journeys.filter import TripPrior
from fedwatt.journeys.fleet_routes import FleetRoutes, VehicleRoutes, passes
from fedwatt.journeys.intervals import (
    Intervals,
    Scores,
    contribution,
    fitted_prior,
    fleet_intervals,
    fleet_means,
    residual_sums,
    validation_scores,
)
from fedwatt.journeys.mixture import Mixture, chosen_mixture, unvalidated_mixture
from fedwatt.journeys.ridge import FleetRidge, fleet_ridge, series_features
from fedwatt.journeys.route_exchange import learn_routes
from fedwatt.journeys.route_files import fleet_from_bytes, fleet_to_bytes
from fedwatt.journeys.route_model import RouteModel
from fedwatt.metrics.sums import add_up
from fedwatt.models import Model
from fedwatt.runs.config import RunConfig
from fedwatt.runs.source import learned_elevation, source_vehicles
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.trip import FloatArray, IntArray, Trip
from fedwatt.windows import Client
from fedwatt.windows.client import prepared, split_of_trips
from fedwatt.windows.features import feature_names, trip_features
from fedwatt.windows.scaling import FleetScaling
from fedwatt.windows.splits import held_out_vehicles, window_ends
from fedwatt.windows.time_offset import delayed

RIDGE_FILE = "fleet_ridge.json"
PRIOR_FILE = "trip_prior.json"
INTERVALS_FILE = "intervals.json"
UNSEEN_FILE = "unseen.json"
SCALING = "mean scaling"


def mixed_predictions(federation: Federation, network: Predictions) -> Predictions:
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
    run: Path, label: str, federation: Federation, predicted: Predictions, live: Sequence[int]
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
        _add_intervals(run / INTERVALS_FILE, label, scores)


def _add_intervals(file: Path, label: str, scores: Sequence[Scores]) -> None:
    """Add the intervals of a method, from its vehicles' scores, to a file of the run."""
    means = fleet_means(scores)
    intervals = fleet_intervals(contribution(vehicle, means) for vehicle in scores)
    _add(file, label, intervals.to_json())


def write_unseen(
    run: Path,
    label: str,
    federation: Federation,
    weights: Tensor,
    ridge: FleetRidge | None,
    scored: Iterable[Client] | None = None,
) -> None:
    """Write what vehicles begin with that the run has not seen, for a global model [D].

    The mean scaling of the vehicles, and the intervals of unseen ones: each vehicle is scored with
    the mean scaling, the global network and the fleet's part of the ridge, as if none of its trips
    were known: with the elevation of the clients to be `scored` (None: the federation's own).
    Vehicles whose features are not scaled one by one leave nothing.
    """
    clients = [client for client in federation.fleet.clients if not client.held_out]
    prior = read_trip_prior(run, label)
    if prior is None or any(client.scaler is None for client in clients):
        return
    mean = fleet_scaling(clients)
    # A model with early exits holds the model itself first.
    first = weights[: federation.model.layout.size].cpu()
    scores = []
    for client in (_without_trips(client, mean) for client in scored or clients):
        mixture = None if ridge is None else unvalidated_mixture(client, ridge)
        model = VehicleModel(federation.model, first, client, mixture)
        predicted = mean.labels.forward(model.of_split("validation"))
        scores.append(validation_scores(client, predicted, prior))
    if scores:
        _add_intervals(run / UNSEEN_FILE, label, scores)
    entry = {name: np.asarray(value).tolist() for name, value in vars(mean).items()}
    _add(run / UNSEEN_FILE, SCALING, entry)


def fleet_scaling(clients: Sequence[Client]) -> FleetScaling:
    """Return the mean scaling of vehicles, each of which scales its own features."""
    scalers = [client.scaler for client in clients if client.scaler is not None]
    consumption = []
    for client, scaler in zip(clients, scalers, strict=True):
        if "speed" in client.features:
            metres = client.window * max(float(scaler.center[client.features.index("speed")]), 0.1)
            label = float(client.energy_wh(client.labels["train"]).mean())
            consumption.append(1000 * label / metres)
    masses = [client.mass_kg for client in clients if client.mass_kg]
    return FleetScaling(
        center=np.mean([scaler.center for scaler in scalers], axis=0),
        scale=np.mean([scaler.scale for scaler in scalers], axis=0),
        label_center=float(np.mean([client.label_center_wh for client in clients])),
        label_scale=float(np.mean([client.label_scale_wh for client in clients])),
        lag_s=float(np.mean([client.lag_s for client in clients])),
        wh_per_km=float(np.mean(consumption)) if consumption else 0.0,
        mass_kg=float(np.mean(masses)) if masses else 0.0,
    )


def read_fleet_scaling(run: Path) -> FleetScaling:
    """Return the mean scaling of a run's vehicles."""
    entry = (_read(run / UNSEEN_FILE) or {}).get(SCALING)
    if entry is None:
        raise RunError(
            f"{run} has no {UNSEEN_FILE}, with which a new vehicle begins: vehicles of a deployed "
            "fleet do not share it. Train the run on a stored or built-in fleet."
        )
    arrays = {name: np.array(entry[name]) for name in ("center", "scale")}
    return FleetScaling(**{**entry, **arrays})


def _without_trips(client: Client, mean: FleetScaling) -> Client:
    """Return a vehicle as one whose training trips are not known."""
    assert client.scaler is not None
    physical = client.series * client.scaler.scale + client.scaler.center
    labels = {
        split: mean.labels.forward(client.energy_wh(values)).astype(np.float32)
        for split, values in client.labels.items()
    }
    return replace(
        client,
        series=mean.features.forward(physical).astype(np.float32),
        scaler=mean.features,
        ends={**client.ends, "train": client.ends["train"][:0]},
        labels={**labels, "train": labels["train"][:0]},
        label_center_wh=float(mean.labels.center),
        label_scale_wh=float(mean.labels.scale),
        masked=0,
    )


def read_trip_prior(run: Path, label: str) -> TripPrior | None:
    """Return the prior of a method, in units of the label scale; None where the run has none."""
    entry = (_read(run / PRIOR_FILE) or {}).get(label)
    return None if entry is None else TripPrior(**entry)


def read_intervals(run: Path, label: str, *, unseen: bool = False) -> Intervals | None:
    """Return a method's intervals, of its vehicles or of `unseen` ones; None: the run has none."""
    entry = (_read(run / (UNSEEN_FILE if unseen else INTERVALS_FILE)) or {}).get(label)
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


ROUTES = "routes.json"
FEWEST_TRIPS = 3
"""With fewer trips than these a vehicle has no split; all of them teach."""


def run_routes(run: Path, config: RunConfig) -> FleetRoutes:
    """Return the route model of a run's fleet."""
    file = run / ROUTES
    if file.is_file():
        return fleet_from_bytes(file.read_bytes(), str(file))
    if (run / "deployment.json").exists():
        raise DataError(
            f"The vehicles of {run} are deployed, and have not shared how they drive: there is "
            f"no {file}. Submit a run with deploy.routes = true."
        )
    routes = learn_run_routes(config)
    write_bytes(file, fleet_to_bytes(routes))
    return routes


def learn_run_routes(config: RunConfig) -> FleetRoutes:
    """Return the routes that the simulated vehicles of a run learn; those held out contribute
    nothing.

    Elevation is learned for them whether or not the run's features have them.
    """
    names = [vehicle.name for vehicle in source_vehicles(config.fleet, config.data)]
    never = held_out_vehicles(names, config.data.held_out, config.data.split_seed)
    learned = learned_elevation(config)
    routes_by_vehicle = {
        vehicle.name: vehicle_route_passes(vehicle, config, learned.maps[vehicle.name])
        for vehicle in source_vehicles(config.fleet, config.data)
        if vehicle.name not in never
    }
    add = add_up if config.secure.enabled else None
    return learn_routes(routes_by_vehicle, config.elevation, add_up=add, elevations=learned.shared)


def vehicle_elevation(
    vehicle: Vehicle, config: RunConfig, shared: ElevationMap | None
) -> ElevationMap | None:
    """Return the vehicle's own map: the shared one and private nodes that lower its errors.

    A vehicle of fewer than `FEWEST_TRIPS` trips has the shared one.
    """
    if shared is None:
        return None
    enough = len({trip.recording for trip in vehicle.trips}) >= FEWEST_TRIPS
    contributors = frozenset([vehicle.name] if enough else [])
    survey = survey_fleet([vehicle], contributors, config.elevation, config.data)
    return vehicle_maps(*survey, shared, config.elevation)[vehicle.name]


def vehicle_route_passes(
    vehicle: Vehicle, config: RunConfig, elevation_map: ElevationMap | None
) -> VehicleRoutes:
    """Return a vehicle's passes of its training and validation trips."""
    trips = list(vehicle.trips)
    if len({trip.recording for trip in trips}) >= FEWEST_TRIPS:
        split_of = split_of_trips(vehicle, config.data)
        trips = [trip for trip in trips if split_of.get(trip.name, "test") != "test"]
    grid = config.elevation.grid
    return VehicleRoutes(passes(trips, grid), elevation_map, mass_kg(vehicle), grid)


def vehicle_routes(run: Path, config: RunConfig, vehicle: Vehicle) -> RouteModel:
    """Return a vehicle's model of routes; that of an unseen vehicle where the run never saw it."""
    fleet = run_routes(run, config)
    if len({trip.recording for trip in vehicle.trips}) >= FEWEST_TRIPS:
        vehicle = prepared(vehicle, config.data)  # as the fleet's own vehicles were
    return fleet.personalised(
        vehicle_route_passes(vehicle, config, vehicle_elevation(vehicle, config, fleet.elevations)),
        vehicle.name,
        contributed=vehicle.name in fleet.insiders,
        capacity_wh=float(vehicle.facts.get("pack_capacity_wh") or 0.0),
    )


CHUNK = 4096
"""Windows predicted at a time."""


@dataclass(frozen=True, eq=False)
class VehicleModel:
    """A network with its weights [D], the vehicle that scales what it reads, and the mixture."""

    network: Model
    weights: Tensor
    client: Client
    mixture: Mixture | None = None

    def mixed(self, fleet_ridge: FleetRidge) -> "VehicleModel":
        """Return the model in the mean with its ridges."""
        validated = self._scaled(self.client.series, self.client.ends["validation"])
        return replace(self, mixture=chosen_mixture(self.client, fleet_ridge, validated))

    def of_split(self, split: str) -> FloatArray:
        """Return predictions [W] for the windows of a split, in the target's unit."""
        return self._predicted(self.client.series, self.client.ends[split])

    def of_trip(self, trip: Trip, features: str, *, lag_s: float) -> FloatArray:
        """Return predictions for each window of a trip, its motion delayed by `lag_s` first."""
        client = self.client
        assert client.scaler is not None
        rows = trip_features(delayed(trip, lag_s), feature_names(features), client.name)
        series = client.scaler.forward(rows).astype(np.float32)
        return self._predicted(series, window_ends(trip.seconds, length=client.window))

    def _predicted(self, series: Any, ends: IntArray) -> FloatArray:
        """Return predictions [W] for windows of a series [seconds, features] that end at `ends`."""
        mixture = self.mixture
        predicted = np.zeros(len(ends))
        if mixture is None or mixture.network:
            predicted = self._scaled(series, ends)
        if mixture is not None:
            linear = series_features(series, ends, self.client.window) @ mixture.linear
            predicted = mixture.network * predicted + linear
        return self.client.energy_wh(predicted)

    def _scaled(self, series: Any, ends: IntArray) -> FloatArray:
        """Return the network's own predictions, scaled as labels are."""
        rows = torch.from_numpy(np.array(series))
        within = np.arange(1 - self.client.window, 1)
        dtype = self.weights.dtype
        with torch.no_grad():
            parts = [
                self.network.predict(
                    self.weights, rows[torch.from_numpy(some[:, None] + within)].to(dtype)
                )
                for some in np.split(ends, range(CHUNK, len(ends), CHUNK))
            ]
        return torch.cat(parts).double().numpy()
