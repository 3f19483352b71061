"""Newcomers of the benchmark of routes: each vehicle in a fleet that has never seen it.

Before any trip it has the others' hills, driving field and coefficients, and its mass, and perhaps
the mean consumption that its display shows (here that of its training and validation trips). After
20 trips it has learned its own part from these, hills included. What it would have before any trip
if one number were known, by which the others' forecasts are off for it in the median, says how much
of its error is the level of the car and how much is all the rest. `journeys_routes.py` calls it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.ved_trips import (
    NAMES,
    SETTINGS,
    board,
    data_settings,
    forecast_only,
    split,
    three,
    wh_per_km,
)
from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.learn import learn, survey_fleet
from fedwatt.elevation.own_map import own_maps
from fedwatt.elevation.survey import mass_kg
from fedwatt.errors import DataError
from fedwatt.journeys.fleet_routes import Pass
from fedwatt.journeys.route_exchange import learn_routes
from fedwatt.journeys.route_intervals import interval
from fedwatt.journeys.route_model import RouteModel
from fedwatt.telemetry import Vehicle

FLEET = "fleet's Wh/km"
BEFORE = "before any trip"
AFTER = "after 20 trips"
INSIDER = "as an insider"
DISPLAY = "before any trip, its mean consumption known"
LEVEL = "before any trip, its level known"
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
    boards = {v.name: board(v, taught[v.name], learned.maps[v.name]) for v in other_vehicles}
    fleet = learn_routes(boards, SETTINGS, hills=learned.shared)
    per_km = wh_per_km([passing for vehicle in other_vehicles for passing in taught[vehicle.name]])
    later = taught[me][:FIRST_TRIPS]
    new = fleet.unseen_vehicle(mass_kg(mine))
    models = {
        BEFORE: new,
        DISPLAY: fleet.unseen_vehicle(mass_kg(mine), wh_per_km(taught[me])),
        LEVEL: at_level(new, taught[me]),
        AFTER: fleet.personalised(
            board(mine, later, hills_of(mine, later, learned.shared, seed)),
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
        row[FLEET] = abs(per_km * passing.route.metres / 1000 / energy - 1)
        row |= {
            name: abs(prediction.total_wh / energy - 1) for name, prediction in predictions.items()
        }
        for name, prediction in predictions.items():
            low, high = interval(prediction.energy_levels_wh[-1], 0.9)
            row[f"covered {name}"] = bool(low <= energy <= high)
        rows.append(row | {"wider": models[BEFORE].bars["energy"].wider})
    return rows


def at_level(model: RouteModel, passes: Sequence[Pass]) -> RouteModel:
    """Return the model, scaled to be right in the median of a car's own passes."""
    ratios = []
    for passing in passes:
        try:
            forecast = model.forecast(passing.route, passing.temperature_c)
        except DataError:
            continue
        ratios.append(passing.measured("energy") / forecast.total_wh)
    energy = model.coefficients["energy"].times(float(np.median(ratios)))
    return replace(model, coefficients={**model.coefficients, "energy": energy})


def hills_of(
    vehicle: Vehicle, first: Sequence[Pass], shared: ElevationMap, seed: int
) -> ElevationMap:
    """Return the others' elevation, extended by what a new vehicle learns from its first trips."""
    few = replace(vehicle, trips=tuple(passing.trip for passing in first))
    data = replace(data_settings(seed), split=FIRST_SPLIT)
    surveys = survey_fleet([few], frozenset([vehicle.name]), shared.grid, SETTINGS, data)
    return own_maps(*surveys, shared, SETTINGS)[vehicle.name]


def about_unseen_vehicles(
    new: Sequence[Mapping[str, Any]], insiders: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Errors of all unseen vehicles and of each, beside those of the same trips of insiders."""
    as_insider = {(row["seed"], row["vehicle"], row["trip"]): row for row in insiders}

    def of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        forecasts = forecast_only(rows)
        inside = [as_insider[row["seed"], row["vehicle"], row["trip"]] for row in forecasts]
        errors = {
            name: three([row[name] for row in forecasts])
            for name in (FLEET, BEFORE, DISPLAY, LEVEL, AFTER)
        }
        errors[INSIDER] = three([row["error"] for row in inside])
        covered = {
            name: [row[f"covered {name}"] for row in forecasts]
            for name in (BEFORE, DISPLAY, LEVEL, AFTER)
        }
        covered[INSIDER] = [row["covered_90"] for row in inside]
        return {
            **errors,
            "trips": len(forecasts),
            "covered": {
                name: round(100 * float(np.mean(rows_of_vehicle)), 1)
                for name, rows_of_vehicle in covered.items()
            },
            "refused": round(100 * (1 - len(forecasts) / len(rows)), 1),
            "wider": round(float(np.mean([row["wider"] for row in forecasts])), 2),
            "of_fleet": round(errors[BEFORE][0] / errors[FLEET][0], 3),
            "display_of_fleet": round(errors[DISPLAY][0] / errors[FLEET][0], 3),
            "level_of_fleet": round(errors[LEVEL][0] / errors[FLEET][0], 3),
            "of_insider": round(errors[AFTER][0] / errors[INSIDER][0], 3),
        }

    by_vehicle = {
        name: of(rows_of_vehicle)
        for name in NAMES
        if forecast_only(rows_of_vehicle := [row for row in new if row["vehicle"] == name])
    }
    everybody = of(new)
    everybody["least_covered"] = {
        name: min(rows_of_vehicle["covered"][name] for rows_of_vehicle in by_vehicle.values())
        for name in (BEFORE, DISPLAY, LEVEL, AFTER)
    }
    return {"all": everybody, "by_vehicle": by_vehicle, "seeds": sorted({r["seed"] for r in new})}
