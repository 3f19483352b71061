"""Train the pre-trained models that fedwatt ships, and measure them on vehicles left out.

    python -m benchmarks.pretrained --fleet FLEET --changchun CAR          measures and trains
    python -m benchmarks.pretrained --fleet FLEET --changchun CAR --only-train

FLEET is made by `fedwatt data import ved PATH --powertrain ev,phev-electric --out FLEET`, CAR by
`fedwatt data import changchun`. What is shipped are coefficients, sums by class of road over at
least three vehicles, and counts of errors; no place, no trip and no name.

"unseen"     every trip of 2 km or more of each of the 12 vehicles before which it had driven
             `DISPLAY_KM` recorded kilometres, by a fleet of all the other vehicles: alone, and with
             the mean consumption of these last kilometres, as its display shows. Climb comes from
             the others' learned elevation map, from SRTM, or is not known
"changchun"  the trips of a car of another make in another country, by the shipped model, with the
             elevation that it recorded
Fills results/pretrained.json, fedwatt/edge/pretrained/ved.routes and measured.json beside it, from
which `fedwatt inspect` makes the model card.
"""

import argparse
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ved_trips import GRID, LEAST_M, NAMES, SETTINGS, data_settings, three
from fedwatt.elevation.learn import Learned, learn
from fedwatt.elevation.survey import mass_kg
from fedwatt.files import write_bytes, write_text
from fedwatt.journeys.driving_field import NO_PASSES, RoadClasses, published
from fedwatt.journeys.fleet_routes import FleetRoutes, Pass, VehicleRoutes, passes
from fedwatt.journeys.route_exchange import learn_routes
from fedwatt.journeys.route_files import fleet_to_bytes
from fedwatt.journeys.route_intervals import interval
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.store import read_fleet
from fedwatt.telemetry.terrain_model import read_terrain_model

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "results" / "pretrained.json"
SHIPPED = ROOT / "fedwatt" / "edge" / "pretrained" / "ved.routes"
POSTS = ROOT.parent / "shared" / "data" / "annarbor" / "srtm3_posts.csv"
ALONE = "nothing known but mass"
DISPLAY = "mean consumption given"
DISPLAY_KM = 50.0
Passes = Mapping[str, Sequence[Pass]]


def fleet_of(vehicles: Iterable[Vehicle], every: Passes, learned: Learned) -> FleetRoutes:
    """Return the routes that vehicles learn together without sharing any place."""
    routes_by_vehicle = {}
    for vehicle in vehicles:
        placeless = tuple(replace(passing, sums=NO_PASSES) for passing in every[vehicle.name])
        routes_by_vehicle[vehicle.name] = VehicleRoutes(
            placeless, learned.maps[vehicle.name], mass_kg(vehicle), GRID
        )
    roads = published(
        [vehicle_routes.roads for vehicle_routes in routes_by_vehicle.values()],
        SETTINGS.minimum_vehicles,
    )
    return learn_routes(
        routes_by_vehicle, SETTINGS, elevations=learned.shared, roads=RoadClasses(roads)
    )


def unseen_rows(
    vehicles: Sequence[Vehicle], every: Passes, me: Vehicle, posts: Any
) -> list[dict[str, Any]]:
    """Return one row for each trip of a vehicle that is in nothing that the others learned."""
    other_vehicles = [vehicle for vehicle in vehicles if vehicle.name != me.name]
    learned = learn(other_vehicles, SETTINGS, data_settings(0))
    fleet = fleet_of(other_vehicles, every, learned)
    rows = []
    for passing in every[me.name]:
        display = displayed(every[me.name], passing)
        if passing.trip.metres < LEAST_M or display is None:
            continue
        row = {"vehicle": me.name, "km": passing.route.metres / 1000}
        for name, route, elevations in (
            ("learned elevation", passing.route, learned.shared),
            ("SRTM", with_elevation(passing, posts), None),
            ("no elevation", passing.route, None),
        ):
            for knowledge, consumption in ((ALONE, None), (DISPLAY, display)):
                model = replace(fleet, elevations=elevations).unseen_vehicle(
                    mass_kg(me), consumption
                )
                row[f"{knowledge}, {name}"] = scored(model, replace(passing, route=route))
        rows.append(row)
    return rows


def with_elevation(passing: Pass, posts: Any) -> Any:
    """Return the route of a pass with elevations from a map, as a GPX file of a planner has."""
    route = passing.route
    return replace(route, elevation_m=posts.elevation_m(route.latitude_deg, route.longitude_deg))


def scored(model: Any, passing: Pass) -> dict[str, float]:
    """Return the relative error of a forecast, and whether its intervals cover the energy."""
    forecast = model.forecast(passing.route, passing.temperature_c)
    energy = passing.measured("energy")
    row = {"error": abs(forecast.total_wh / energy - 1)}
    row["duration"] = abs(float(forecast.seconds[-1]) / passing.measured("duration") - 1)
    for share in (50, 90):
        low, high = interval(forecast.energy_levels_wh[-1], share / 100)
        row[f"covered_{share}"] = float(low <= energy <= high)
    return row


def displayed(trips: Sequence[Pass], passing: Pass) -> float | None:
    """Return the mean consumption on the display when a trip begins, Wh/km.

    `trips` are in the order of driving. The mean is over the last ones before `passing` that are
    `DISPLAY_KM` together; None where there are too few.
    """
    last: list[Pass] = []
    for other in trips[: next(n for n, other in enumerate(trips) if other is passing)][::-1]:
        last.append(other)
        if sum(each.route.metres for each in last) >= 1000 * DISPLAY_KM:
            return wh_per_km(last)
    return None


def wh_per_km(trips: Sequence[Pass]) -> float:
    """Return the mean consumption of passes."""
    energy = sum(passing.measured("energy") for passing in trips)
    return energy / sum(passing.route.metres for passing in trips) * 1000


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return errors (median, mean, 90th percentile, %) and coverage by what was known."""
    result: dict[str, Any] = {"trips": len(rows)}
    for name in (key for key, value in rows[0].items() if isinstance(value, dict)):
        cells = [row[name] for row in rows]
        by_vehicle = {
            vehicle: round(
                100
                * float(np.mean([r[name]["covered_90"] for r in rows if r["vehicle"] == vehicle])),
                1,
            )
            for vehicle in dict.fromkeys(row["vehicle"] for row in rows)
        }
        result[name] = {
            "energy": three([cell["error"] for cell in cells]),
            "duration": three([cell["duration"] for cell in cells]),
            "covered_50": percent([cell["covered_50"] for cell in cells]),
            "covered_90": percent([cell["covered_90"] for cell in cells]),
            "least_covered": min(by_vehicle.values()),
        }
    return result


def percent(shares: Sequence[float]) -> float:
    """Return a mean share in percent."""
    return round(100 * float(np.mean(shares)), 1)


def changchun_rows(fleet: FleetRoutes, car: Vehicle) -> list[dict[str, Any]]:
    """Return one row for each trip of the car, forecast by the shipped fleet."""
    trips = [passing for passing in passes(car.trips, GRID) if passing.trip.metres >= LEAST_M]
    rows = []
    for passing in trips:
        height = np.interp(
            passing.route.metres_at, passing.at_m, passing.trip.channels["elevation_m"]
        )
        route = replace(passing.route, elevation_m=np.append(height[:1], height))
        display = displayed(trips, passing)
        if display is None:
            continue
        row: dict[str, Any] = {"vehicle": car.name, "km": route.metres / 1000}
        for knowledge, consumption in ((ALONE, None), (DISPLAY, display)):
            model = fleet.unseen_vehicle(mass_kg(car), consumption)
            row[f"{knowledge}, measured elevation"] = scored(model, replace(passing, route=route))
        rows.append(row)
    return rows


def driven(every: Passes) -> dict[str, Any]:
    """Return how much driving the shipped model has learned from, in coarse numbers."""
    trips = [passing for by_vehicle in every.values() for passing in by_vehicle]
    low, high = np.percentile([passing.temperature_c for passing in trips], (1, 99))
    kilometres = sum(passing.route.metres for passing in trips) / 1000
    return {
        "vehicles": sum(bool(by_vehicle) for by_vehicle in every.values()),
        "trips": len(trips),
        "kilometres": round(kilometres, -2),
        "temperatures_c": [round(float(low)), round(float(high))],
    }


def card_facts(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the card of a pre-trained model says."""
    shipped = record["shipped"]
    unseen = record["unseen"]
    low, high = shipped["temperatures_c"]
    rows = {
        "mass known": f"{ALONE}, learned elevation",
        "mean consumption given": f"{DISPLAY}, learned elevation",
        "mass known, elevation from SRTM": f"{ALONE}, SRTM",
        "mean consumption given, elevation from SRTM": f"{DISPLAY}, SRTM",
        "mass known, no elevation": f"{ALONE}, no elevation",
    }
    covered = unseen[rows["mass known"]]
    return {
        "trained_on": {
            "vehicles": f"{shipped['vehicles']} cars: electric, and hybrids with the engine off",
            "driven": f"{shipped['trips']:,} trips, {shipped['kilometres']:,.0f} km",
            "where": "one town in Michigan and its surroundings, 2017 and 2018",
            "temperature": f"{low} to {high} °C",
            "data": "Vehicle Energy Dataset (Oh, LeBlanc, Peng), Apache-2.0",
        },
        "errors": {name: unseen[key]["energy"] for name, key in rows.items()},
        "limits": [
            f"90 % intervals cover {covered['covered_90']:g} % of the trips of vehicles left out, "
            f"and {covered['least_covered']:g} % of those of the worst vehicle.",
            "Speeds follow the shape of the road alone: traffic, limits and stops are not known.",
            "Trips of 2 km and more; heavy vehicles and motorways above 120 km/h are not in it.",
            "Without elevations in the route, or --dem, hills count as level.",
        ],
        "privacy": "Sums over three vehicles and more, without noise, places or names.",
        "licence": "Apache-2.0",
    }


def main() -> None:
    """Measure and train."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fleet", type=Path, required=True)
    options.add_argument("--changchun", type=Path, required=True)
    options.add_argument("--only-train", action="store_true")
    chosen = options.parse_args()
    vehicles = list(read_fleet(chosen.fleet))
    every = {
        vehicle.name: passes(sorted(vehicle.trips, key=lambda trip: trip.start_time_s), GRID)
        for vehicle in vehicles
    }
    fleet = fleet_of(vehicles, every, learn(vehicles, SETTINGS, data_settings(0)))
    shipped = replace(fleet, elevations=None, insiders=frozenset())
    write_bytes(SHIPPED, zlib.compress(fleet_to_bytes(shipped), 9))
    record = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    record["shipped"] = {"bytes": SHIPPED.stat().st_size, **driven(every)}
    car = next(iter(read_fleet(chosen.changchun)))
    record["changchun"] = summary(changchun_rows(shipped, car))
    if not chosen.only_train:
        posts = read_terrain_model([POSTS])
        rows: list[dict[str, Any]] = []
        for me in (vehicle for vehicle in vehicles if vehicle.name in NAMES):
            rows += unseen_rows(vehicles, every, me, posts)
            print(f"{me.name}: {json.dumps(summary(rows[-200:]))}", flush=True)
        record["unseen"] = summary(rows)
    write_text(RECORD, json.dumps(record, indent=1) + "\n")
    card = json.dumps(card_facts(record), indent=1, ensure_ascii=False)
    write_text(SHIPPED.with_name("measured.json"), card + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
