"""The embedded fleet: electric vehicles of one hilly town, ready to use without any data at hand.

Each vehicle has its own mass, drag, losses and pack, its own driver, its own errands, rounds or
line, and its own part of the year; the town, its hills and its weather are shared. All draws are
keyed by the vehicle's name, so a vehicle is the same in a fleet of three and of ten thousand.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedwatt.data.client import DataSettings, Fleet, build_fleet
from fedwatt.data.trip import Trip, Vehicle
from fedwatt.errors import SettingError, counted, unknown
from fedwatt.physics.classes import draw_vehicle
from fedwatt.physics.climate import daily_mean_c, trip_days, trip_temperature_c
from fedwatt.physics.consumption import consume
from fedwatt.physics.driver import draw_style, drive
from fedwatt.physics.duty import DUTIES
from fedwatt.physics.recording import record
from fedwatt.physics.routes import itinerary, trace
from fedwatt.physics.town import town
from fedwatt.randomness import generator

USUAL_TRIPS = 40
"""Of a synthetic vehicle."""
PREFIXES = {"passenger": "car", "truck": "truck", "bus": "bus"}


def synthetic_vehicles(
    vehicles: int, seed: int = 0, *, trips: int = USUAL_TRIPS, kind: str = "passenger"
) -> Iterator[Vehicle]:
    """Vehicles "car-001", "car-002", ... (or "truck-", "bus-") of the town of `seed`, one by one.

    A vehicle is the same however many are asked for.
    """
    if kind not in PREFIXES:
        raise SettingError(unknown("kind of vehicle", kind, PREFIXES))
    if vehicles < 1 or trips < 1:
        raise SettingError(
            f"A synthetic fleet of {vehicles} vehicles with {trips} trips each is empty. "
            "Ask for at least one of each."
        )
    names = (f"{PREFIXES[kind]}-{number:03d}" for number in range(1, vehicles + 1))
    return (synthetic_vehicle(name, seed=seed, trips=trips, kind=kind) for name in names)


def synthetic_fleet(
    vehicles: int = 20,
    seed: int = 0,
    settings: DataSettings | None = None,
    *,
    trips: int = USUAL_TRIPS,
    kind: str = "passenger",
) -> Fleet:
    """Clients of `vehicles` synthetic vehicles; default settings if none are given."""
    made = synthetic_vehicles(vehicles, seed, trips=trips, kind=kind)
    source = synthetic_source(vehicles, seed, trips=trips, kind=kind)
    fleet = build_fleet(made, settings or DataSettings(), source)
    if kind != "passenger":  # of which no configuration makes any
        return fleet
    origin: dict[str, str | int] = {"data": "synthetic", "vehicles": vehicles}
    return replace(fleet, origin=origin | {"seed": seed, "trips": trips})


def synthetic_source(vehicles: int, seed: int, *, trips: int, kind: str = "passenger") -> str:
    """Where synthetic vehicles come from, for people.

    >>> synthetic_source(1, 0, trips=12), synthetic_source(3, 7, trips=40, kind="bus")
    ('synthetic, 1 vehicle with 12 trips each, seed 0',
     'synthetic, 3 bus vehicles with 40 trips each, seed 7')
    """
    what = counted(vehicles, "vehicle" if kind == "passenger" else f"{kind} vehicle")
    return f"synthetic, {what} with {trips} trips each, seed {seed}"


def synthetic_vehicle(
    name: str, *, seed: int = 0, trips: int = USUAL_TRIPS, kind: str = "passenger"
) -> Vehicle:
    """The vehicle `name` in the town of `seed`, from its roads to its telemetry."""
    place, duty = town(seed), DUTIES[kind]
    model, vehicle = draw_vehicle(kind, generator(seed, "vehicle", name))
    style = draw_style(generator(seed, "driver", name), duty)
    mix, paths = itinerary(place, seed, name, trips, kind)
    path = trace(place, paths)
    motion = drive(path, style, generator(seed, "driving", name), duty)
    outside_c = trip_temperature_c(daily_mean_c(seed), *trip_days(name, seed, trips))
    truth = consume(vehicle, path, motion, outside_c, generator(seed, "trips", name))
    channels = record(path, motion, truth, generator(seed, "sensors", name))
    cuts = np.flatnonzero(np.diff(motion.trip)) + 1
    pieces = {channel: np.split(values, cuts) for channel, values in channels.items()}
    facts = {
        "source": f"synthetic, seed {seed}",
        "model": model,
        "powertrain": "ev",
        "mass_kg": round(vehicle.mass_kg, 1),
        "drag_area_m2": round(vehicle.drag_area_m2, 4),
        "pack_capacity_wh": round(vehicle.pack.capacity_wh, 1),
        "route_mix": mix,
    }
    recorded = tuple(
        Trip(f"trip-{n + 1:03d}", {channel: parts[n] for channel, parts in pieces.items()})
        for n in range(trips)
    )
    return Vehicle(name, recorded, kind, "simulated", facts)
