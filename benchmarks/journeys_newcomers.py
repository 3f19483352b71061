"""Newcomers of the benchmark of routes: each vehicle in a fleet that has never seen it.

Before any trip it has the others' hills, driving field and coefficients, and its mass. After 20
trips it has learned its own part from these, hills included. `journeys_routes.py` calls it.
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
from fedwatt.telemetry import Vehicle

BEFORE = "before any trip"
AFTER = "after 20 trips"
FIRST_TRIPS = 20
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
    later = taught[me][:FIRST_TRIPS]
    models = {
        BEFORE: fleet.unseen_vehicle(mass_kg(mine)),
        AFTER: fleet.personalised(
            vehicle_routes(mine, later, hills_of(mine, later, learned.shared, seed)),
            me,
            contributed=False,
        ),
    }
    rows = []
    for passing in tested[me]:
        row: dict[str, Any] = {"seed": seed, "vehicle": me, "trip": passing.trip.name}
        energy = passing.measured("energy")
        try:
            predictions = {
                name: model.forecast(passing.route, passing.temperature_c)
                for name, model in models.items()
            }
        except DataError:  # the others know less than a fifth of the way
            rows.append(row | {"refused": True})
            continue
        row |= {
            name: abs(prediction.total_wh / energy - 1) for name, prediction in predictions.items()
        }
        for name, prediction in predictions.items():
            low, high = interval(prediction.energy_levels_wh[-1], 0.9)
            row[f"covered {name}"] = bool(low <= energy <= high)
        rows.append(row)
    return rows


def hills_of(
    vehicle: Vehicle, first: Sequence[Pass], shared: ElevationMap, seed: int
) -> ElevationMap:
    """Return the others' elevation, extended by what a new vehicle learns from its first trips."""
    few = replace(vehicle, trips=tuple(passing.trip for passing in first))
    data = replace(data_settings(seed), split=FIRST_SPLIT)
    surveys = survey_fleet([few], frozenset([vehicle.name]), SETTINGS, data)
    return vehicle_maps(*surveys, shared, SETTINGS)[vehicle.name]


def about_unseen_vehicles(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return errors and coverage over all unseen vehicles, and the least coverage of any."""
    forecasts = forecast_only(rows)
    by_vehicle = [[row for row in forecasts if row["vehicle"] == name] for name in NAMES]
    result: dict[str, Any] = {
        name: three([row[name] for row in forecasts]) for name in (BEFORE, AFTER)
    }
    result["covered"] = {name: covered(forecasts, name) for name in (BEFORE, AFTER)}
    result["least_covered"] = {
        name: min(covered(cells, name) for cells in by_vehicle if cells) for name in (BEFORE, AFTER)
    }
    return result | {"seeds": sorted({row["seed"] for row in rows})}


def covered(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return the share of trips that the 90 % interval covers, %."""
    return round(100 * float(np.mean([row[f"covered {name}"] for row in rows])), 1)
