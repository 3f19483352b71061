"""The synthetic fleet: electric vehicles of one hilly town, from their roads to their telemetry.

Each vehicle has its own mass, drag, losses and pack, its own driver, its own errands, rounds or
line, and its own part of the year; the town, its ground and its weather are shared. All draws are
keyed by the vehicle's name, so a vehicle is the same in a fleet of three and of ten thousand.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedwatt.physics.arrays import FloatArray
from fedwatt.physics.classes import draw_vehicle
from fedwatt.physics.climate import daily_mean_c, trip_days, trip_temperature_c
from fedwatt.physics.consumption import consume
from fedwatt.physics.driver import draw_style, drive
from fedwatt.physics.duty import DUTIES
from fedwatt.physics.recording import record
from fedwatt.physics.routes import itinerary, trace
from fedwatt.physics.town import town
from fedwatt.randomness import generator


@dataclass(frozen=True, eq=False)
class SyntheticVehicle:
    """A vehicle's facts and, for each trip, its name and channels (each float64 [seconds])."""

    name: str
    kind: str
    facts: Mapping[str, str | float]
    trips: tuple[tuple[str, Mapping[str, FloatArray]], ...]


def synthetic_vehicle(
    name: str, *, seed: int = 0, trips: int = 40, kind: str = "passenger"
) -> SyntheticVehicle:
    """Telemetry of the vehicle `name` in the town of `seed`."""
    place = town(seed)
    model, vehicle = draw_vehicle(kind, generator(seed, "vehicle", name))
    duty = DUTIES[kind]
    style = draw_style(generator(seed, "driver", name), duty)
    mix, paths = itinerary(place, seed, name, trips, kind)
    path = trace(place, paths)
    motion = drive(path, style, generator(seed, "driving", name), duty)
    days, hours = trip_days(name, seed, trips)
    outside_c = trip_temperature_c(daily_mean_c(seed), days, hours)
    truth = consume(vehicle, path, motion, outside_c, generator(seed, "trips", name))
    channels = record(path, motion, truth, generator(seed, "sensors", name))
    cuts = np.flatnonzero(np.diff(motion.trip)) + 1
    pieces = {channel: np.split(values, cuts) for channel, values in channels.items()}
    return SyntheticVehicle(
        name=name,
        kind=vehicle.kind,
        facts={
            "source": f"synthetic, seed {seed}",
            "model": model,
            "powertrain": "ev",
            "mass_kg": round(vehicle.mass_kg, 1),
            "drag_area_m2": round(vehicle.drag_area_m2, 4),
            "pack_capacity_wh": round(vehicle.pack.capacity_wh, 1),
            "route_mix": mix,
        },
        trips=tuple(
            (
                f"trip-{number + 1:03d}",
                {channel: parts[number] for channel, parts in pieces.items()},
            )
            for number in range(trips)
        ),
    )
