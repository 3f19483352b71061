"""The built-in fleet: electric vehicles of one town, ready to use without any data at hand.

Each vehicle has its own mass, drag, losses and pack, its own driver, its own errands, rounds or
line, and its own part of the year; they share the town, its elevation and its weather. All draws
are keyed by the vehicle's name, so a vehicle is the same in a fleet of three and of ten thousand.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fedwatt.errors import SettingError, counted, unknown
from fedwatt.randomness import generator
from fedwatt.synthetic.driver import draw_style, drive
from fedwatt.synthetic.recording import consume, record
from fedwatt.synthetic.routes import itinerary, trace
from fedwatt.synthetic.town import daily_mean_c, town, trip_days, trip_temperature_c
from fedwatt.synthetic.vehicle import DUTIES, draw_vehicle
from fedwatt.telemetry.trip import Trip, Vehicle
from fedwatt.windows.client import DataSettings, Fleet
from fedwatt.windows.lazy import Maker

USUAL_TRIPS = 40
"""Of a synthetic vehicle."""
PREFIXES = {"passenger": "car", "truck": "truck", "bus": "bus"}


@dataclass(frozen=True)
class TownVehicles(Maker):
    """The first `number` vehicles of the town of `seed`, as `synthetic_vehicles` gives them."""

    number: int
    seed: int
    trips: int
    kind: str = field(default="passenger", repr=False)  # a digest of the fleet is of its recipe

    data: ClassVar[str] = "synthetic"
    """What the section [fleet] of a configuration calls them."""
    made: ClassVar[str] = "synthetic"

    def __post_init__(self) -> None:
        if self.kind not in PREFIXES:
            raise SettingError(unknown("kind of vehicle", self.kind, PREFIXES))
        if self.number < 1 or self.trips < 1:
            raise SettingError(
                f"A synthetic fleet of {self.number} vehicles with {self.trips} trips each is "
                "empty. Ask for at least one of each."
            )

    @property
    def source(self) -> str:
        """Description of how the vehicles are made, and how many.

        >>> TownVehicles(1, 0, 12).source, TownVehicles(3, 7, 40, "bus").source
        ('synthetic, 1 vehicle with 12 trips each, seed 0',
         'synthetic, 3 bus vehicles with 40 trips each, seed 7')
        """
        kind = "" if self.kind == "passenger" else f"{self.kind} "
        what = counted(self.number, f"{kind}vehicle")
        return f"{self.made}, {what} with {self.trips} trips each, seed {self.seed}"

    @property
    def origin(self) -> Mapping[str, str | int]:
        """Of passenger cars; a configuration makes no others."""
        sizes = {"vehicles": self.number, "seed": self.seed, "trips": self.trips}
        return {"data": self.data, **sizes} if self.kind == "passenger" else {}

    @property
    def count(self) -> int:
        """Number of vehicles."""
        return self.number

    def name(self, place: int) -> str:
        """car-001, car-002, ..."""
        return f"{PREFIXES[self.kind]}-{place + 1:03d}"

    def vehicles(self, places: Sequence[int]) -> list[Vehicle]:
        """One after the other."""
        recipe: dict[str, Any] = {"seed": self.seed, "trips": self.trips, "kind": self.kind}
        return [synthetic_vehicle(self.name(place), **recipe) for place in places]


def synthetic_vehicles(
    vehicles: int, seed: int = 0, *, trips: int = USUAL_TRIPS, kind: str = "passenger"
) -> Iterator[Vehicle]:
    """Vehicles "car-001", "car-002", ... (or "truck-", "bus-") of the town of `seed`, one by one.

    A vehicle is the same however many are asked for.
    """
    return TownVehicles(vehicles, seed, trips, kind).all()


def synthetic_fleet(
    vehicles: int = 20,
    seed: int = 0,
    settings: DataSettings | None = None,
    *,
    trips: int = USUAL_TRIPS,
    kind: str = "passenger",
) -> Fleet:
    """Clients of `vehicles` synthetic vehicles; default settings if none are given."""
    return TownVehicles(vehicles, seed, trips, kind).fleet(settings)


def synthetic_vehicle(
    name: str, *, seed: int = 0, trips: int = USUAL_TRIPS, kind: str = "passenger"
) -> Vehicle:
    """Return the vehicle `name` in the town of `seed`, from its roads to its telemetry."""
    place = town(seed)
    duty = DUTIES[kind]
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
