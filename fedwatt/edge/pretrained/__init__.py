"""Models that come with fedwatt, and the opening of any model by its name or path.

`ved.routes` holds what a fleet of 16 electric and plug-in hybrid cars knows about routes anywhere:
coefficients, sums over at least three cars by class of road, and counts of errors
(`benchmarks/pretrained.py` makes it from VED). A pre-trained model is that fleet at one vehicle's
mass and capacity. No place, no trip and no name is in it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fedwatt.edge.route_forecast import Departure, loaded, refuse_scaling
from fedwatt.elevation.survey import USUAL_MASS_KG
from fedwatt.errors import DataError, SettingError, unknown
from fedwatt.files import inflate
from fedwatt.journeys.fleet_routes import FleetRoutes, VehicleRoutes, passes
from fedwatt.journeys.route_files import fleet_from_bytes
from fedwatt.journeys.route_model import RouteModel

if TYPE_CHECKING:  # a forecast of a route needs no onnxruntime
    from fedwatt.edge.energy_model import EnergyModel
    from fedwatt.runs.config import RunConfig
    from fedwatt.telemetry import Vehicle

LARGEST_BYTES = 10_000_000
FEWEST_FOR_ELEVATION = 10
"""Recorded trips without which a vehicle learns no elevation map of its own."""
CONSUMPTION_AND_TRIPS = (
    "--consumption is for a vehicle without trips: --vehicle learns it from its own."
)


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A vehicle that a pre-trained model stands for; `capacity_wh` is usable, 0 if unknown."""

    title: str
    mass_kg: float
    capacity_wh: float = 0.0


PRETRAINED: Final[Mapping[str, Pretrained]] = {
    "leaf-24": Pretrained(title="Nissan Leaf with 24 kWh", mass_kg=1588.0, capacity_wh=21_300.0),
    "plug-in-hybrid": Pretrained(title="plug-in hybrid car, driven electrically", mass_kg=1814.0),
    "electric-car": Pretrained(title="electric car of any make", mass_kg=1700.0),
}


@cache
def shipped_fleet() -> FleetRoutes:
    """Return the fleet that all pre-trained models share."""
    content = files("fedwatt.edge.pretrained").joinpath("ved.routes").read_bytes()
    return fleet_from_bytes(inflate(content, LARGEST_BYTES), "ved.routes")


@lru_cache(maxsize=64)
def unseen_routes(name: str, mass_kg: float | None, consumption: float | None) -> RouteModel:
    """Return the routes of a pre-trained model for a vehicle that has no trips of its own."""
    vehicle = PRETRAINED[name]
    model = shipped_fleet().unseen_vehicle(mass_kg or vehicle.mass_kg, consumption)
    return replace(model, vehicle=name, capacity_wh=vehicle.capacity_wh)


def owner_routes(name: str, vehicle: "Vehicle", mass: float | None) -> RouteModel:
    """Return a pre-trained model that a vehicle's own trips have taught where and how it drives.

    Its driving field and its elevation map are made from these trips alone, and counted as those of
    a vehicle that joined the fleet later, so its intervals are wider than a member's.
    """
    from fedwatt.elevation.learn import learn_alone
    from fedwatt.elevation.settings import ElevationSettings
    from fedwatt.windows import DataSettings

    fleet = shipped_fleet()
    elevations = None
    if len({trip.recording for trip in vehicle.trips}) >= FEWEST_FOR_ELEVATION:
        alone = learn_alone([vehicle], ElevationSettings(cell_m=fleet.grid.cell_m), DataSettings())
        elevations = alone.maps[vehicle.name]
    weight_kg = mass or vehicle.facts.get("mass_kg") or PRETRAINED[name].mass_kg
    trips = VehicleRoutes(
        passes(vehicle.trips, fleet.grid), elevations, float(weight_kg), fleet.grid
    )
    stated_wh = vehicle.facts.get("pack_capacity_wh") or PRETRAINED[name].capacity_wh
    return fleet.personalised(trips, vehicle.name, contributed=False, capacity_wh=float(stated_wh))


def route_model(model: str, plan: Departure) -> RouteModel:
    """Return the routes of a pre-trained model, a model file or a run folder, for a plan."""
    if model in PRETRAINED:
        if plan.vehicle is None:
            chosen = unseen_routes(model, plan.mass_kg, plan.consumption)
        elif plan.consumption is not None:
            raise SettingError(CONSUMPTION_AND_TRIPS)
        else:
            from fedwatt.telemetry.store import read_vehicle

            chosen = owner_routes(model, read_vehicle(plan.vehicle), plan.mass_kg)
    elif Path(model).is_dir():
        chosen = _run_routes(Path(model), plan)
    else:
        refuse_scaling(plan, model)
        chosen = file_routes(opened(model))
    return loaded(chosen, plan.load_kg)


def file_routes(model: "EnergyModel") -> RouteModel:
    """Return the routes in a model file."""
    routes = model.routes()
    if routes is None:
        raise DataError(
            f"{model.path} knows nothing about routes. Export it with --routes, or give the run's "
            "folder."
        )
    return routes


def _run_routes(run: Path, plan: Departure) -> RouteModel:
    """Return the routes of a run's fleet for the plan's vehicle, or for an unseen one."""
    # A computer that only predicts has model files, and none of what run folders need.
    from fedwatt.runs.journeys import run_routes
    from fedwatt.runs.model_file import read_model_config
    from fedwatt.telemetry.store import read_vehicle

    config = read_model_config(run)
    if plan.vehicle is not None:
        if plan.consumption is not None:
            raise SettingError(CONSUMPTION_AND_TRIPS)
        return routes_of_member(run, config, read_vehicle(plan.vehicle))
    if plan.kind not in USUAL_MASS_KG:
        raise SettingError(unknown("class of vehicle", plan.kind, USUAL_MASS_KG))
    mass_kg = USUAL_MASS_KG[plan.kind] if plan.mass_kg is None else plan.mass_kg
    return run_routes(run, config).unseen_vehicle(mass_kg, plan.consumption)


def routes_of_member(run: Path, config: "RunConfig", vehicle: "Vehicle") -> RouteModel:
    """Return the routes of a run's vehicle; those of the shipped fleet where one car or two ran."""
    from fedwatt.journeys.route_exchange import TooFewContributors
    from fedwatt.runs.journeys import vehicle_routes

    try:
        return vehicle_routes(run, config, vehicle)
    except TooFewContributors:
        return owner_routes("electric-car", vehicle, None)


def opened(model: str) -> "EnergyModel":
    """Return the model file of a name or path, opened for prediction."""
    if model in PRETRAINED:
        raise DataError(
            f"{model} predicts routes: fedwatt route ROUTE --model {model}. For recorded trips "
            "make a model file with 'fedwatt adapt' or 'fedwatt export'."
        )
    if not Path(model).is_file():
        raise DataError(
            f"There is no model file '{model}'. 'fedwatt export' and 'fedwatt adapt' make one; "
            f"pre-trained models of routes are {', '.join(PRETRAINED)}."
        )
    from fedwatt.edge.energy_model import EnergyModel

    return EnergyModel(model)


def pretrained_card(name: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the model card of a pre-trained model: sections of names and values."""
    vehicle = PRETRAINED[name]
    measured = json.loads(files("fedwatt.edge.pretrained").joinpath("measured.json").read_text())
    capacity = f"{vehicle.capacity_wh / 1000:g} kWh" if vehicle.capacity_wh else "give --capacity"
    errors = [
        (where, f"median {median:.1f} %, mean {mean:.1f} %, 90 % of trips below {high:.1f} %")
        for where, (median, mean, high) in measured["errors"].items()
    ]
    return [
        (
            "The model",
            [
                ("predicts", "energy, duration and state of charge of routes before departure"),
                ("vehicle", f"{vehicle.title}, {vehicle.mass_kg:,.0f} kg"),
                ("usable capacity", capacity),
                ("method", "mixed effects by absolute deviations, from sums over vehicles"),
            ],
        ),
        ("Trained on", [(name, str(value)) for name, value in measured["trained_on"].items()]),
        ("Errors on vehicles left out", errors),
        ("Limits", [("", sentence) for sentence in measured["limits"]]),
        ("Privacy", [("", measured["privacy"])]),
        ("Licence", [("", measured["licence"])]),
    ]
