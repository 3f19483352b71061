"""Adapt a run's model to a vehicle that was not in the run, from any number of its trips.

    trips    scaling        elevation       network       intervals
    0        the fleet's    shared map      the run's     of an unseen vehicle
    1, 2     pooled         private nodes   the run's     of an unseen vehicle
    3 or 4   pooled         private nodes   the run's     narrowed by its validation trips
    5 on     pooled         private nodes   fine-tuned    narrowed by its validation trips

Pooled scaling counts the fleet's as an hour of driving (`windows.scaling.pooled`). A fine-tuned
network counts only where it lowers the error of the vehicle's validation trips. A mixture's ridge,
which has the fleet's prior (`journeys.ridge`), and the private map learn from every trip, once
intervals are calibrated with those of the training trips alone (`edge.export`). Private nodes are
not chosen by few validation trips: they are shrunk towards the shared map by its prior, and only
from 20 trips on may validation trips give up all elevation.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fedwatt.edge.card import ModelCard
from fedwatt.edge.export import (
    TrainedModel,
    export,
    read_trained,
    with_climb_of,
)
from fedwatt.edge.export_run import about_run
from fedwatt.edge.pretrained import routes_of_member
from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.store import read_map_file
from fedwatt.elevation.survey import surveys
from fedwatt.elevation.vehicle_map import unvalidated_map
from fedwatt.errors import SettingError, counted
from fedwatt.evaluation.finetune import PersonalisedModel, personalised_models
from fedwatt.runs.config import RunConfig
from fedwatt.runs.journeys import read_fleet_scaling, read_intervals, vehicle_elevation
from fedwatt.runs.model_file import MODEL_FILE, flat
from fedwatt.runs.simulation import federation_for
from fedwatt.runs.source import learns_elevation
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.store import read_vehicle
from fedwatt.windows import Client, Fleet, build_client
from fedwatt.windows.features import feature_names, needs_climb
from fedwatt.windows.scaling import FleetScaling
from fedwatt.windows.vehicle_trips import (
    UNSEEN_SPLIT,
    prepared,
    recordings,
    split_of_unseen,
    usable_trips,
)

FEWEST_TO_TUNE = 5
"""Trips without which validation trips are too few to choose a fine-tuned network."""
FEWEST_TO_LEAVE_MAP = 20
"""Trips without which validation trips are too few to give the fleet's whole map up."""


@dataclass(frozen=True)
class Adaptation:
    """The card of an adapted model, and two lines: what was chosen, and why."""

    card: ModelCard
    chosen: str
    reason: str


def adapt(
    run: str | Path,
    out: str | Path,
    *,
    vehicle: str | Path | Vehicle | None = None,
    method: str | None = None,
    mass_kg: float | None = None,
    wh_per_km: float | None = None,
    routes: bool = False,
) -> Adaptation:
    """Write the model file `out` for a vehicle that was not in the `run`.

    vehicle    the vehicle or its folder; None: it has no trips
    method     of the run; None: its first
    mass_kg    of the vehicle; None: as its folder says, or unknown
    wh_per_km  mean consumption on its display; None: unknown. It comes before the mass
    routes     whether the file also predicts trips from their routes
    """
    run = Path(run)
    trained = read_trained(run, method=method)
    trained = replace(
        trained,
        about=about_run(run, trained.method, "final", ""),
        intervals=read_intervals(run, trained.method, unseen=True),
    )
    data = trained.config.data
    if vehicle is None:
        vehicle = Vehicle("unseen vehicle", ())
    elif not isinstance(vehicle, Vehicle):
        vehicle = read_vehicle(Path(vehicle))
    target = set(data.predicts.made_of)
    usable = tuple(trip for trip in usable_trips(vehicle, data) if target <= trip.channels.keys())
    vehicle = replace(vehicle, trips=usable)
    scaling = read_fleet_scaling(run)
    mass_kg = mass_kg or vehicle.facts.get("mass_kg")
    scaling = scaling.times(_energy_factor(scaling, mass_kg, wh_per_km))
    trips = recordings(vehicle, data)
    # The parts that split trips by themselves must have the same training trips.
    config = replace(trained.config, data=replace(data, split=UNSEEN_SPLIT))
    aligned = prepared(vehicle, data, scaling)
    elevation_map, final_map = _elevation_maps(run, config, aligned, trips)
    tuned = None
    if trips >= FEWEST_TO_TUNE:
        climbing = with_climb_of(config, aligned, elevation_map)[0]
        client = build_client(climbing, data, unseen=scaling)
        trained, tuned = _fine_tuned(trained, client)
    planned = routes_of_member(run, config, vehicle) if routes else None
    card = export(
        trained,
        Path(out),
        vehicle=vehicle,
        field=elevation_map,
        routes=planned,
        unseen=scaling,
        final_field=final_map,
    )
    return Adaptation(card, _chosen(card, trips, tuned), _reason(card, trips, tuned))


def _energy_factor(fleet: FleetScaling, mass_kg: float | None, wh_per_km: float | None) -> float:
    """Return the energy of the vehicle relative to the fleet's mean; 1 if nothing is known."""
    if wh_per_km is not None and not 20 <= wh_per_km <= 5000:
        raise SettingError(
            f"A consumption of {wh_per_km:g} Wh/km is no vehicle's: 15.2 kWh/100 km is 152 Wh/km."
        )
    if wh_per_km and fleet.wh_per_km > 0:
        return wh_per_km / fleet.wh_per_km
    if mass_kg and fleet.mass_kg:
        return float(mass_kg) / fleet.mass_kg
    return 1.0


def _elevation_maps(
    run: Path, config: RunConfig, vehicle: Vehicle, trips: int
) -> tuple[ElevationMap | None, ElevationMap | None]:
    """Return the map of the training trips, with which choices are validated, and that of all.

    Both are None where the model needs none.
    """
    climbs = needs_climb(feature_names(config.data.features))
    if not climbs or config.elevation.source == "measured":
        return None, None
    if not learns_elevation(config):
        fixed = read_map_file(Path(config.elevation.source))
        return fixed, fixed
    shared = read_map_file(run / "elevation_map.parquet")
    validated = vehicle_elevation(vehicle, config, shared)
    assert validated is not None
    has_energy = all("energy_wh" in trip.channels for trip in vehicle.trips)
    if not (trips and has_energy) or (not validated.nodes and trips >= FEWEST_TO_LEAVE_MAP):
        return validated, validated
    settings = config.elevation
    split_of = split_of_unseen(vehicle, config.data)
    length = shared.prior.segment_s
    maps = []
    for splits in (split_of, dict.fromkeys(split_of, "train")):
        by_length = surveys(
            vehicle, settings.grid, [length], splits, "train", measured=settings.measures
        )
        private = unvalidated_map(by_length[length], shared, settings)
        maps.append(replace(private, measured=validated.measured))
    return maps[0], maps[1]


def _fine_tuned(trained: TrainedModel, client: Client) -> tuple[TrainedModel, PersonalisedModel]:
    """Return the model that the vehicle has fine-tuned; of 0 steps if none was better."""
    # The engine wants test windows, and looks at none of them.
    ends = {**client.ends, "test": client.ends["validation"]}
    labels = {**client.labels, "test": client.labels["validation"]}
    config = replace(trained.config, seeds=(trained.seed,))
    choice = next(choice for choice in config.methods if choice.label == trained.method)
    fleet = Fleet((replace(client, ends=ends, labels=labels),), config.data, client.name)
    federation = federation_for(config, choice, fleet)
    layout = federation.model.layout
    weights = torch.from_numpy(flat(trained.weights, layout, MODEL_FILE))
    start = weights.to(federation.device, federation.dtype)
    settings = replace(config.personalisation, enabled=True)
    tuned = next(personalised_models(federation, start[None], settings, [0]))
    parts = {name: p.cpu().float().numpy() for name, p in layout.split(tuned.weights).items()}
    return replace(trained, weights=parts, personalised=tuned.steps > 0), tuned


def _chosen(card: ModelCard, trips: int, tuned: PersonalisedModel | None) -> str:
    """Return what was chosen, in one line."""
    scaling = f"scaling of {counted(trips, 'trip')} and the fleet" if trips else "fleet's scaling"
    network = "network of the run"
    if tuned is not None and tuned.steps:
        network = f"network fine-tuned by {tuned.steps:,} steps at {tuned.learning_rate:g}"
    if card.network_weight < 1:
        network += " mixed with a ridge"
    parts = [scaling, network]
    if "nodes" in card.elevation:
        parts.append(f"elevation map of {card.elevation['nodes']:,} nodes")
    bars = card.calibration
    parts.append(f"{bars['level']:.0%} intervals from {bars['source']}" if bars else "no intervals")
    return f"Chosen for {card.vehicle}: {', '.join(parts)}."


def _reason(card: ModelCard, trips: int, tuned: PersonalisedModel | None) -> str:
    """Return why, in one line."""
    validation = counted(len(card.trips["validation"]), "validation trip")
    if trips == 0:
        reason = "without trips all comes from the fleet"
    elif tuned is None:
        reason = f"fine-tuning the network needs {FEWEST_TO_TUNE} trips"
    elif tuned.steps:
        reason = f"that has the lowest error on {validation}"
    else:
        reason = f"no fine-tuned network has a lower error on {validation}"
    return f"Why: {reason}."
