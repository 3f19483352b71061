"""From a run folder to a model file that a vehicle can use.

The file of a vehicle holds its scaling, its elevation map and its prediction intervals.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedwatt import __version__
from fedwatt.edge.calibration import (
    LEVEL,
    Calibration,
    CalibrationTrip,
    calibrate,
    clustered_quantile,
    fewest_trips,
    level_for,
    rescaled,
)
from fedwatt.edge.card import ROUTES_KEY, ModelCard
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.graph import Network, build
from fedwatt.edge.trips import outcome
from fedwatt.elevation.climb import unlocated, with_elevation, with_measured_elevation
from fedwatt.elevation.elevation_map import MAP_KEY, ElevationMap, map_to_text
from fedwatt.errors import SettingError, unknown
from fedwatt.federation.selection import GLOBAL_MODELS
from fedwatt.files import write_bytes
from fedwatt.journeys.filter import TripPrior
from fedwatt.journeys.intervals import USUAL, Intervals, contribution, in_wh, validation_scores
from fedwatt.journeys.mixture import Mixture, chosen_mixture, unvalidated_mixture
from fedwatt.journeys.ridge import FleetRidge, mixed_ridge
from fedwatt.journeys.route_files import model_to_text
from fedwatt.journeys.route_model import RouteModel
from fedwatt.models import MODELS, Model, get_model
from fedwatt.plugins import short
from fedwatt.runs.config import RunConfig
from fedwatt.runs.folder import run_hash
from fedwatt.runs.journeys import read_fleet_ridge, read_intervals, read_trip_prior
from fedwatt.runs.model_file import (
    flat,
    read_model,
    read_model_config,
)
from fedwatt.telemetry import INTERVAL_S, Trip, Vehicle
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows import FEATURES, Client, build_client, feature_names
from fedwatt.windows.client import prepared
from fedwatt.windows.features import needs_climb
from fedwatt.windows.scaling import FleetScaling
from fedwatt.windows.targets import ENERGY, TRIP_TARGETS, with_measured_energy

FEWEST_VEHICLES = 5
"""Vehicles of a run without which its intervals are no guide for another."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """One model of a run: its tensors by name, and the run's configuration.

    With a `fleet_ridge` the vehicle mixes it with ridges. `trip_prior` is in units of the label
    scale; `intervals` are those of the run's vehicles.
    """

    weights: dict[str, np.ndarray[Any, Any]]
    config: RunConfig
    method: str
    seed: int
    personalised: bool = False
    fleet_ridge: FleetRidge | None = None
    trip_prior: TripPrior = USUAL
    intervals: Intervals | None = None
    own: Model | None = None
    """The network, where it is none of fedwatt's."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What its card says for people (`fedwatt.edge.export_run`)."""

    def __post_init__(self) -> None:
        if self.own is not None:
            flat(self.weights, self.own.layout, self.config.model.name)


def read_trained(
    run: Path, *, method: str | None = None, seed: int | None = None, which: str = "final"
) -> TrainedModel:
    """Return a model of a finished run: of its first method and first seed unless said otherwise.

    "final" is what vehicles use, "best" the model of the round with the lowest validation error and
    "last" that of the last.
    """
    run = Path(run)
    config = read_model_config(run)
    if which not in GLOBAL_MODELS:
        raise SettingError(unknown("model of a run", which, GLOBAL_MODELS))
    labels = [choice.label for choice in config.methods]
    chosen = labels[0] if method is None else method
    if chosen not in labels:
        raise SettingError(unknown("method of this run", chosen, labels))
    number = config.seeds[0] if seed is None else seed
    if number not in config.seeds:
        seeds = ", ".join(map(str, config.seeds))
        raise SettingError(f"The run has no seed {number}; it has {seeds}.")
    weights = read_model(run, chosen, which, number)
    return TrainedModel(
        weights,
        config,
        chosen,
        number,
        fleet_ridge=read_fleet_ridge(run),
        trip_prior=read_trip_prior(run, chosen) or USUAL,
        intervals=read_intervals(run, chosen),
        own=user_network(config),
    )


def user_network(config: RunConfig) -> Model | None:
    """Return the network of a configuration, if it is none of fedwatt's."""
    choice = config.model
    data = config.data
    if choice.name in MODELS:
        return None
    columns = len(data.columns)
    return get_model(choice.name, window=data.window, features=columns, hidden=choice.hidden)


def export(
    trained: TrainedModel,
    out: Path,
    *,
    vehicle: Vehicle | None = None,
    field: ElevationMap | None = None,
    routes: RouteModel | None = None,
    unseen: FleetScaling | None = None,
    final_field: ElevationMap | None = None,
) -> ModelCard:
    """Write the model file `out`, with the vehicle's model of `routes` where it has one.

    With a `vehicle` its scaling is in the graph and its prediction intervals are in the card. The
    file of a model with elevation holds the vehicle's map, `field`, and prediction intervals for
    windows whose climb is unknown.
    A vehicle `unseen` by the run may have any number of trips, and none of them is for test. Its
    file holds `final_field`, which validation trips made as well, and the ridge of all its trips,
    after training trips alone made those that intervals are calibrated with.
    """
    if vehicle is None:
        card = _card(trained)
        write_bytes(Path(out), _bytes(card, _network(trained)))
        return card
    # Predictions are made of trips as recorded: the file itself delays them and reads their climb.
    aligned = prepared(vehicle, trained.config.data, unseen)
    climbing, elevation, notes = with_climb_of(trained.config, aligned, field)
    if routes is not None:
        notes |= {ROUTES_KEY: model_to_text(routes)}
    client = build_client(climbing, trained.config.data, unseen=unseen)
    network = _network(trained, client)
    splits = {trip: split for split, names in client.trips.items() for trip in names}
    measured = replace(
        vehicle, trips=tuple(with_measured_energy(trip, vehicle.facts) for trip in vehicle.trips)
    )
    draft = _Draft(measured, splits, network, notes)
    trips = {"training": draft.trips("train"), "validation": draft.trips("validation")}
    card = replace(
        _card(trained, vehicle),
        elevation=elevation,
        lag_s=float(aligned.facts.get("lag_s", 0.0)),
        network_weight=1.0 if network.mixture is None else network.mixture.network,
        trips={role: [trip.name for trip in role_trips] for role, role_trips in trips.items()},
        balance=balance_entry(network.mixture, client),
    )
    if card.target in TRIP_TARGETS:
        card = _with_intervals(trained, draft, client, card)
    if elevation and card.calibration and (unseen is None or _enough_trips(client)):
        masked = replace(draft, vehicle=_without_elevation(measured, card.features))
        card = replace(card, without_elevation=masked.calibration(card))
    if unseen is not None:
        card, draft = _learned_from_all(card, draft, trained, client, final_field)
    write_bytes(Path(out), draft.content(card))
    return card


def _learned_from_all(
    card: ModelCard,
    draft: "_Draft",
    trained: TrainedModel,
    client: Client,
    field: ElevationMap | None,
) -> tuple[ModelCard, "_Draft"]:
    """Return the file with the elevation map and the ridge of all trips, for validation is over."""
    if field is not None:
        text, elevation = map_to_text(field)
        card = replace(card, elevation=elevation)
        draft = replace(draft, notes={**draft.notes, MAP_KEY: text})
    mixture = draft.network.mixture
    if mixture is not None and trained.fleet_ridge is not None:
        ridge = mixed_ridge(client, trained.fleet_ridge, validation=True)
        mixture = replace(mixture, linear=(1 - mixture.network) * ridge)
        draft = replace(draft, network=replace(draft.network, mixture=mixture))
    return card, draft


def _with_intervals(
    trained: TrainedModel, draft: "_Draft", client: Client, card: ModelCard
) -> ModelCard:
    """Return the card with prediction intervals and the prior in Wh for a trip under way.

    They come from the run's other vehicles, or from the vehicle's trips; there are no intervals
    where both are too few.
    """
    own_trips = bool(client.trips["validation"])
    if card.target != ENERGY.name:
        # The run's intervals and priors are of minutes of measured energy.
        return replace(card, calibration=draft.calibration(card) if own_trips else {})
    if trained.intervals is not None and trained.intervals.vehicles >= FEWEST_VEHICLES:
        mixture = draft.network.mixture
        predicted = scaled_predictions(trained, client)
        if mixture is not None:
            predicted = mixture.predict(client, "validation", predicted)
        bars, prior = fleet_intervals(trained.intervals, client, predicted, trained.trip_prior)
        calibration = bars.to_json()
    else:
        calibration = draft.calibration(card) if own_trips else {}
        prior = in_wh(trained.trip_prior, client.label_scale_wh)
        prior = draft.trip_prior(card, prior) if own_trips else prior
    return replace(
        card,
        calibration=calibration,
        trip_prior=asdict(prior),
        memory_scale_wh=client.label_scale_wh,
    )


def _enough_trips(client: Client) -> bool:
    """Return whether the vehicle's trips allow intervals of the highest level."""
    validation = len(client.trips["validation"])
    return validation > 0 and len(client.trips["train"]) + validation >= fewest_trips(LEVEL)


@dataclass(frozen=True, eq=False)
class _Draft:
    """The file of a vehicle while its card is not complete, and the trips that complete it."""

    vehicle: Vehicle
    splits: Mapping[str, str]  # trip → split
    network: Network
    notes: Mapping[str, str]

    def content(self, card: ModelCard) -> bytes:
        """Return the bytes of the ONNX file with this card."""
        return _bytes(card, self.network, self.notes)

    def trips(self, split: str) -> list[Trip]:
        """Return the vehicle's trips of a split."""
        return [trip for trip in self.vehicle.trips if self.splits.get(trip.name) == split]

    def outcomes(self, card: ModelCard, split: str) -> list[CalibrationTrip]:
        """Return the predictions of the file with this card for the trips of a split."""
        model = _opened(self.content(card))
        return [outcome(model, trip, self.vehicle.name) for trip in self.trips(split)]

    def calibration(self, card: ModelCard) -> dict[str, Any]:
        """Return prediction intervals of the file with this card, from the vehicle's trips."""
        speed = card.features.index("speed") if "speed" in card.features else -1
        seen = [self.outcomes(card, split) for split in ("train", "validation")]
        level = level_for(sum(map(len, seen)))
        return calibrate(*seen, level=level, speed_column=speed).to_json()

    def trip_prior(self, card: ModelCard, prior: TripPrior) -> TripPrior:
        """Return the prior with the factor that its intervals need on the vehicle's own trips."""
        scores = (
            [outcome.in_trip_scores(prior, card.window) for outcome in self.outcomes(card, split)]
            for split in ("validation", "train")
        )
        factor = clustered_quantile(rescaled(*scores), LEVEL)
        return replace(prior, factor=factor) if math.isfinite(factor) and factor > 0 else prior


def _without_elevation(vehicle: Vehicle, features: Sequence[str]) -> Vehicle:
    """Return the vehicle as if it had no receiver, barometer or map."""
    needed = {channel for name in features for channel in FEATURES[name].needs}
    return replace(vehicle, trips=tuple(unlocated(trip, needed) for trip in vehicle.trips))


def _network(trained: TrainedModel, client: Client | None = None) -> Network:
    if client is None:
        return Network(trained.weights, own=trained.own)
    mixture = None
    if trained.fleet_ridge is not None and len(client.ends["validation"]):
        predicted = scaled_predictions(trained, client)
        mixture = chosen_mixture(client, trained.fleet_ridge, predicted)
    elif trained.fleet_ridge is not None:
        mixture = unvalidated_mixture(client, trained.fleet_ridge)
    label = (client.label_center_wh, client.label_scale_wh)
    return Network(trained.weights, client.scaler, *label, mixture, own=trained.own)


def scaled_predictions(trained: TrainedModel, client: Client) -> FloatArray:
    """Return the network's predictions of the validation windows, scaled."""
    alone = _opened(_bytes(_card(trained), _network(trained)))
    return alone.energies(client.series, client.ends["validation"])


def with_climb_of(
    config: RunConfig, vehicle: Vehicle, field: ElevationMap | None
) -> tuple[Vehicle, dict[str, Any], dict[str, str]]:
    """Return the vehicle with climb where the model needs it, and the elevation of the card and the
    file.
    """
    if not needs_climb(feature_names(config.data.features)):
        return vehicle, {}, {}
    if config.elevation.source == "measured":
        return with_measured_elevation(vehicle), {"source": "elevation"}, {}
    if field is None:
        raise SettingError(
            "The model was trained with elevation: it needs the vehicle's elevation map as well. "
            "Give the file of one with --elevation."
        )
    text, provenance = map_to_text(field)
    return with_elevation(vehicle, field), provenance, {MAP_KEY: text}


def _card(trained: TrainedModel, vehicle: Vehicle | None = None) -> ModelCard:
    data = trained.config.data
    features = data.columns if vehicle is None else feature_names(data.features)
    return ModelCard(
        features=features,
        units=tuple("scaled" if vehicle is None else FEATURES[name].unit for name in features),
        window=data.window,
        interval_s=INTERVAL_S,
        method=trained.method,
        run_hash=run_hash(trained.config),
        library=__version__,
        backbone=short(trained.config.model.name),
        vehicle="" if vehicle is None else vehicle.name,
        output="scaled" if vehicle is None else data.predicts.unit,
        target=data.predicts.name if not data.horizon else f"{data.predicts.name} ahead",
        personalised=trained.personalised,
        about=dict(trained.about),
    )


def _bytes(card: ModelCard, network: Network, notes: Mapping[str, str] | None = None) -> bytes:
    return bytes(build(card, network, notes=notes).SerializeToString(deterministic=True))


def _opened(content: bytes) -> EnergyModel:
    return EnergyModel("the model to export", content=content)


def fleet_intervals(
    fleet: Intervals, client: Client, predicted: FloatArray, prior: TripPrior
) -> tuple[Calibration, TripPrior]:
    """Return the error bars of a vehicle, calibrated on the other vehicles, and its prior in Wh.

    `predicted` are scaled predictions of its validation windows, `prior` is in label scales. A
    vehicle that contributed to the fleet's intervals takes its own contribution off.
    """
    scores = validation_scores(client, predicted, prior)
    own = contribution(scores, fleet.means)
    others = fleet.without(own) if fleet.includes(own) else fleet
    kind = "in_trip" if others.counts["in_trip"].any() else "windows"
    scaled = in_wh(prior, client.label_scale_wh)
    scaled = replace(scaled, factor=others.factor(kind, scores[kind]))
    bars = Calibration(
        level=LEVEL,
        trips=others.trips,
        source=f"trips of {others.vehicles} other vehicles",
        window_factor=others.factor("windows", scores["windows"]),
        trip_factor=others.factor("trips", scores["trips"]),
        speed_column=client.features.index("speed") if "speed" in client.features else -1,
        vehicles=others.vehicles,
        window=client.window,
        prior=scaled,
    )
    return bars, scaled


def balance_entry(mixture: Mixture | None, client: Client) -> dict[str, Any]:
    """Return the card's entry on the trip balance; empty where the vehicle uses none."""
    balance = None if mixture is None else mixture.balance
    if balance is None or client.scaler is None:
        return {}
    return balance.to_json() | {
        "feature_center": client.scaler.center.tolist(),
        "feature_scale": client.scaler.scale.tolist(),
        "label_scale_wh": client.label_scale_wh,
    }
