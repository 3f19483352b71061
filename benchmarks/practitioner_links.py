"""Trips of VED as road links, which is how RouteE-Powertrain sees driving.

A link is 300 m or 1 km of a trip; the rest of a trip joins its last link. Before departure a link's
speed, stops and acceleration are what the fleet's driving field expects there (of a training trip:
without the trip itself), and its grade is that of the learned elevation map. With known speed they
are measured, and so is the climate power.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.ved_trips import (
    GRID,
    LEAST_M,
    SETTINGS,
    data_settings,
    recorded,
    split,
    vehicle_routes,
    wh_per_km,
)
from fedwatt.elevation.learn import learn
from fedwatt.elevation.survey import mass_kg
from fedwatt.errors import DataError
from fedwatt.journeys.driving_field import OWN_WEIGHT, vehicle_field
from fedwatt.journeys.fleet_routes import USUAL_C, Pass
from fedwatt.journeys.route import outside_c
from fedwatt.journeys.route_exchange import learn_routes
from fedwatt.journeys.route_model import route_rise_m
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.features import acceleration

LENGTHS_M = (300, 1000)
METRES_PER_MILE = 1609.344
MPH_PER_MPS = 2.2369363
STANDING_MPS = 0.5
TRIP = ["vehicle", "split", "trip"]


@dataclass(frozen=True, eq=False)
class LinkedTrips:
    """The links of a split by their length, and what is known of each of its trips."""

    links: Mapping[int, pd.DataFrame]
    trips: pd.DataFrame


def link_numbers(metres: FloatArray, length_m: float) -> IntArray:
    """Return the link of each piece of a way, [pieces], from the metres of each.

    >>> link_numbers(np.array([200.0, 200.0, 200.0, 100.0]), 300.0)
    array([0, 1, 1, 1])
    """
    middles = np.cumsum(metres) - metres / 2
    links = max(round(float(metres.sum()) / length_m), 1)
    return np.minimum((middles // length_m).astype(np.int64), links - 1)


def linked(
    link: IntArray,
    pieces: Mapping[str, FloatArray],
    energy_wh: NDArray[Any],
    temperature_c: float,
) -> pd.DataFrame:
    """Return one row per link from sums over its pieces; `energy_wh` [links] is measured."""
    size = int(link.max()) + 1
    total = {name: np.bincount(link, values, size) for name, values in pieces.items()}
    metres = np.maximum(total["metres"], 1.0)
    seconds = np.maximum(total["seconds"], 1.0)
    elapsed_s = np.cumsum(seconds) - seconds
    return pd.DataFrame(
        {
            "distance": metres / METRES_PER_MILE,
            "kwh": energy_wh / 1000,
            "speed_mph": MPH_PER_MPS * metres / seconds,
            "grade_percent": 100 * total["rise"] / metres,
            "temperature_c": temperature_c,
            "minutes": elapsed_s / 60,
            "standing_share": total["standing"] / seconds,
            "drive_per_m": total["drive"] / metres,
            "climate_kw": total["climate"] / seconds / 1000,
        }
    )


# --------------------------------------------------------------------- before departure
def links_before_departure(vehicles: tuple[Vehicle, ...], seed: int) -> LinkedTrips:
    """Return links as the fleet expects them, and fedwatt's forecast of each test trip."""
    passes = recorded(vehicles)
    taught, tested = split(vehicles, passes, seed)
    learned = learn(vehicles, SETTINGS, data_settings(seed))
    routes_by_vehicle = {
        v.name: vehicle_routes(v, taught[v.name], learned.maps[v.name]) for v in vehicles
    }
    fleet = learn_routes(routes_by_vehicle, SETTINGS, elevations=learned.shared)
    tables: dict[int, list[pd.DataFrame]] = {length: [] for length in LENGTHS_M}
    trips = []
    for vehicle in vehicles:
        name = vehicle.name
        vehicle_board = routes_by_vehicle[vehicle.name]
        model = fleet.personalised(vehicle_board, name)
        field = vehicle_field(fleet.driving, vehicle_board.sums, GRID, contributed=True)
        per_km = wh_per_km(taught[name])
        split_of = split_of_trips(vehicle, data_settings(seed))
        for part, driven in (("taught", taught[name]), ("test", tested[name])):
            for passing in driven:
                rates, _ = field.read(
                    passing.cells, passing.sums.times(OWN_WEIGHT * (part == "taught"))
                )
                rise, _ = route_rise_m(passing.route, vehicle_board.elevations)
                identity = {"vehicle": name, "trip": passing.trip.name}
                identity["split"] = split_of[passing.trip.name]
                for length in LENGTHS_M:
                    links_of_trip = _expected(passing, rates, rise, length)
                    links_of_trip["mass_kg"] = mass_kg(vehicle)
                    tables[length].append(links_of_trip.assign(**identity))
                energy = passing.measured("energy")
                forecast = np.nan
                if part == "test":
                    try:
                        forecast = model.forecast(passing.route, passing.temperature_c).total_wh
                    except DataError:  # the fleet knows less than a fifth of the route
                        forecast = np.nan
                mean = per_km * passing.route.metres / 1000
                trips.append({**identity, "wh": energy, "fedwatt": forecast, "mean Wh/km": mean})
    links = {length: pd.concat(frames, ignore_index=True) for length, frames in tables.items()}
    return LinkedTrips(links, pd.DataFrame(trips))


def _expected(passing: Pass, rates: FloatArray, rise: FloatArray, length_m: int) -> pd.DataFrame:
    """Return the links of a route as the driving field expects them, with measured energies."""
    route = passing.route
    metres = np.full(route.steps, route.step_m)
    link = link_numbers(metres, length_m)
    _, seconds, _, drive, _, standing = (rates * route.step_m).T
    pieces = {
        "metres": metres,
        "seconds": seconds,
        "rise": rise,
        "standing": standing,
        "drive": 10 * drive,
        "climate": np.zeros(route.steps),
    }
    step = np.clip(np.ceil(passing.at_m / route.step_m).astype(np.int64) - 1, 0, route.steps - 1)
    energy = np.bincount(link[step], passing.trip.channels["energy_wh"], int(link.max()) + 1)
    return linked(link, pieces, energy, passing.temperature_c)


# --------------------------------------------------------------------- with known speed
def links_with_speed(
    vehicles: tuple[Vehicle, ...], splits: Mapping[str, Mapping[str, str]]
) -> LinkedTrips:
    """Return links as they were driven; `vehicles` have channels of climb."""
    tables: dict[int, list[pd.DataFrame]] = {length: [] for length in LENGTHS_M}
    trips = []
    for vehicle in vehicles:
        for trip in vehicle.trips:
            part = splits[vehicle.name].get(trip.name)
            metres = float(trip.channels["speed_mps"].sum())
            if part is None or metres < (LEAST_M if part == "test" else LENGTHS_M[0]):
                continue
            identity = {"vehicle": vehicle.name, "trip": trip.name, "split": part}
            for length in LENGTHS_M:
                tables[length].append(_driven(trip, length).assign(**identity))
            trips.append({**identity, "wh": float(trip.channels["energy_wh"].sum())})
    links = {length: pd.concat(frames, ignore_index=True) for length, frames in tables.items()}
    return LinkedTrips(links, pd.DataFrame(trips))


def _driven(trip: Trip, length_m: int) -> pd.DataFrame:
    """Return the links of a recorded trip."""
    channels = trip.channels
    speed = channels["speed_mps"]
    link = link_numbers(speed, length_m)
    pieces = {
        "metres": speed,
        "seconds": np.ones_like(speed),
        "rise": channels["climb_m"] - channels["descent_m"],
        "standing": (speed < STANDING_MPS).astype(float),
        "drive": np.maximum(speed * acceleration(speed), 0.0),
        "climate": np.nan_to_num(channels["heater_w"]) + np.nan_to_num(channels["ac_w"]),
    }
    energy = np.bincount(link, channels["energy_wh"], int(link.max()) + 1)
    outside = outside_c(trip)
    return linked(link, pieces, energy, USUAL_C if outside is None else outside)
