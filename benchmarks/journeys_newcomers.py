"""Newcomers of the benchmark of routes: each vehicle in a fleet that has never seen it.

Before any trip it has the others' elevation, driving field and coefficients, and its mass. With
trips it learns its own part from these, elevation included. `journeys_routes.py` calls it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.ved_trips import (
    NAMES,
    SETTINGS,
    data_settings,
    forecast_only,
    split,
    three,
    vehicle_routes,
)
from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.learn import learn, survey_fleet
from fedwatt.elevation.survey import mass_kg
from fedwatt.elevation.vehicle_map import vehicle_maps
from fedwatt.errors import DataError
from fedwatt.journeys.fleet_routes import Pass
from fedwatt.journeys.route_exchange import learn_routes
from fedwatt.journeys.route_intervals import interval
from fedwatt.journeys.route_model import RouteModel
from fedwatt.telemetry import Vehicle

BEFORE = "before any trip"
STAGES = {BEFORE: 0, "after 20 trips": 20, "after all its training trips": 10_000}
"""First training trips that the vehicle has, at most."""
FIRST_SPLIT = (0.8, 0.15, 0.05)
"""Most first trips of an unseen vehicle teach its map, some choose; a split needs one test trip."""


def unseen_vehicle_rows(
    vehicles: Sequence[Vehicle], all_: Mapping[str, Mapping[str, Pass]], seed: int, me: str
) -> list[dict[str, Any]]:
    """One row for each test trip of a vehicle that is in nothing that the others learned."""
    taught, tested = split(vehicles, all_, seed)
    other_vehicles = [vehicle for vehicle in vehicles if vehicle.name != me]
    mine = next(vehicle for vehicle in vehicles if vehicle.name == me)
    learned = learn(other_vehicles, SETTINGS, data_settings(seed))
    routes_by_vehicle = {
        v.name: vehicle_routes(v, taught[v.name], learned.maps[v.name]) for v in other_vehicles
    }
    fleet = learn_routes(routes_by_vehicle, SETTINGS, elevations=learned.shared)
    rows = []
    for stage, trips in STAGES.items():
        first = taught[me][:trips]
        model = fleet.unseen_vehicle(mass_kg(mine))
        if first:
            elevations = elevation_of(mine, first, learned.shared, seed)
            model = fleet.personalised(
                vehicle_routes(mine, first, elevations), me, contributed=False
            )
        for passing in tested[me]:
            row = {"seed": seed, "vehicle": me, "trip": passing.trip.name, "stage": stage}
            rows.append(row | forecast_row(model, passing))
    return rows


def forecast_row(model: RouteModel, passing: Pass) -> dict[str, Any]:
    """Return the error and coverage of a forecast, or that it was refused."""
    try:
        forecast = model.forecast(passing.route, passing.temperature_c)
    except DataError:  # less than a fifth of the way is known
        return {"refused": True}
    energy_wh = passing.measured("energy")
    low, high = interval(forecast.energy_levels_wh[-1], 0.9)
    covered = bool(low <= energy_wh <= high)
    return {"error": abs(forecast.total_wh / energy_wh - 1), "covered": covered}


def elevation_of(
    vehicle: Vehicle, first: Sequence[Pass], shared: ElevationMap, seed: int
) -> ElevationMap:
    """Return the others' elevation, extended by what a new vehicle learns from its first trips."""
    few = replace(vehicle, trips=tuple(passing.trip for passing in first))
    data = replace(data_settings(seed), split=FIRST_SPLIT)
    surveys = survey_fleet([few], frozenset([vehicle.name]), SETTINGS, data)
    return vehicle_maps(*surveys, shared, SETTINGS)[vehicle.name]


def about_unseen_vehicles(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return errors by stage, the mean coverage over vehicles, and the least of any, %."""
    result: dict[str, Any] = {"seeds": sorted({row["seed"] for row in rows})}
    for stage in STAGES:
        forecasts = [row for row in forecast_only(rows) if row["stage"] == stage]
        covered = {
            name: round(100 * float(np.mean([row["covered"] for row in cells])), 1)
            for name in NAMES
            if (cells := [row for row in forecasts if row["vehicle"] == name])
        }
        result[stage] = {
            "trips": len(forecasts),
            "error": three([row["error"] for row in forecasts]),
            "covered": round(float(np.mean(list(covered.values()))), 1),
            "least_covered": min(covered.values()),
            "by_vehicle": covered,
        }
    return result
