"""The built-in fleet: electric vehicles of one town, ready to use without any data at hand.

Each vehicle has its own mass, drag, losses and pack, its own driver, its own errands, rounds or
line, and its own part of the year; they share the town, its elevation and its weather. All draws
are keyed by the vehicle's name, so a vehicle is the same in a fleet of three and of ten thousand.
A drive is recorded as sensors, map and battery management log it, with their errors.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from fedwatt.errors import SettingError, counted, unknown
from fedwatt.randomness import generator
from fedwatt.synthetic.battery import PackTrace, supply
from fedwatt.synthetic.driver import Motion, draw_style, drive
from fedwatt.synthetic.routes import STEP_M, Path, itinerary, trace
from fedwatt.synthetic.town import daily_mean_c, degrees, town, trip_days, trip_temperature_c
from fedwatt.synthetic.vehicle import (
    DUTIES,
    VehicleParameters,
    charge_between_trips,
    climate_power_w,
    draw_vehicle,
    traction_power_w,
    wheel_power_w,
)
from fedwatt.telemetry.trip import FloatArray, IntArray, Trip, Vehicle
from fedwatt.windows.client import DataSettings, Fleet
from fedwatt.windows.lazy import Maker


def rounded(values: FloatArray, resolution: float) -> FloatArray:
    """Nearest multiple of the resolution.

    >>> rounded(np.array([0.26, -0.6]), 0.5)
    array([ 0.5, -0.5])
    """
    return np.round(values / resolution) * resolution


def wander(
    trip: IntArray, second: IntArray, spread: float, memory_s: int, rng: np.random.Generator
) -> FloatArray:
    """Slow error of about `spread` that forgets itself over `memory_s`, afresh in each trip."""
    knots_before = np.concatenate([[0], np.cumsum(np.bincount(trip) // memory_s + 2)])
    knots = spread * rng.normal(size=knots_before[-1])
    knot, within = np.divmod(second, memory_s)
    at = knots_before[trip] + knot
    share = within / memory_s
    return np.asarray(knots[at] * (1 - share) + knots[at + 1] * share)


@dataclass(frozen=True, eq=False)
class Truth:
    """True values in each second, before any sensor; arrays are [seconds]."""

    ambient_c: FloatArray
    heater_w: FloatArray
    ac_w: FloatArray
    pack: PackTrace


def consume(
    vehicle: VehicleParameters,
    path: Path,
    motion: Motion,
    outside_c: FloatArray,
    rng: np.random.Generator,
) -> Truth:
    """Everything the pack feeds, and what it does; `outside_c` [trips] is the air of each trip."""
    drift_c = wander(motion.trip, motion.second, 0.4, 300, rng)
    ambient_c = outside_c[motion.trip] + drift_c
    payload_kg = DUTIES[vehicle.kind].draw_payload_kg(len(outside_c), rng)[motion.trip]
    heater_w, ac_w = climate_power_w(vehicle, ambient_c, motion.second.astype(float))

    # Means over the second: way made, speed gained and height climbed are exact there.
    elevation_m = path.at(path.elevation_m, motion.distance_m)
    climbed_m = np.diff(elevation_m, prepend=elevation_m[:1])
    moving = motion.moved_m > 0
    grade = np.divide(climbed_m, motion.moved_m, out=np.zeros_like(climbed_m), where=moving)
    speed_mps = motion.moved_m
    wheel_w = wheel_power_w(vehicle, speed_mps, motion.gained_mps, grade, ambient_c, payload_kg)
    traction_w = traction_power_w(vehicle, wheel_w, speed_mps, ambient_c)
    demand_w = traction_w + heater_w + ac_w + vehicle.auxiliary_w
    drives = charge_between_trips(vehicle.pack, motion.trip, demand_w, rng)
    return Truth(ambient_c, heater_w, ac_w, supply(vehicle.pack, demand_w, drives))


AT_NODE_M = 15.0


def record(path: Path, motion: Motion, truth: Truth, rng: Generator) -> dict[str, FloatArray]:
    """Channels of all trips one after the other, each float64 [seconds]."""
    return {
        **_driving_channels(motion, truth, rng),
        **_road_channels(path, motion, rng),
        **_position_channels(path, motion, rng),
        **_pack_channels(motion, truth, rng),
    }


def _driving_channels(motion: Motion, truth: Truth, rng: Generator) -> dict[str, FloatArray]:
    calibration = 1 + 0.01 * rng.normal()
    speed_mps = motion.speed_mps * (calibration + 0.003 * rng.normal(size=len(motion.speed_mps)))
    # A thermometer behind the bumper reads a little high.
    bias_c = rng.uniform(-0.5, 1.5)
    return {
        "speed_mps": rounded(speed_mps, 0.1),
        "ambient_c": rounded(truth.ambient_c + bias_c, 0.5),
        "ac_w": rounded(truth.ac_w, 50.0),
        "heater_w": rounded(truth.heater_w, 50.0),
    }


def _road_channels(path: Path, motion: Motion, rng: Generator) -> dict[str, FloatArray]:
    """Return the map channels of the road under the vehicle."""
    seconds = len(motion.trip)
    elevation_m = path.at(path.elevation_m, motion.distance_m)
    grade = path.at(np.gradient(path.elevation_m, STEP_M), motion.distance_m)
    on = np.minimum((motion.distance_m / STEP_M).astype(np.int64), len(path.limit_mps) - 1)
    return {
        "elevation_m": rounded(elevation_m + wander(motion.trip, motion.second, 0.5, 60, rng), 0.1),
        "grade": rounded(grade + 0.002 * rng.normal(size=seconds), 0.0005),
        "speed_limit_mps": path.limit_mps[on],
        "intersection": _near(motion.distance_m, path.pass_point[path.intersection]),
        "bus_stop": _near(motion.distance_m, path.pass_point[path.bus_stop]),
        "focus_point": _near(motion.distance_m, path.pass_point[path.stop_kind > 0]),
    }


def _position_channels(path: Path, motion: Motion, rng: Generator) -> dict[str, FloatArray]:
    east_m, north_m = (
        path.at(true_m, motion.distance_m)
        + wander(motion.trip, motion.second, 2.5, 30, rng)
        + 0.3 * rng.normal(size=len(motion.trip))
        for true_m in (path.x_m, path.y_m)
    )
    places = zip(("latitude_deg", "longitude_deg"), degrees(east_m, north_m), strict=True)
    return {name: rounded(values, 1e-6) for name, values in places}


def _pack_channels(motion: Motion, truth: Truth, rng: Generator) -> dict[str, FloatArray]:
    """Voltage, current and charge as the battery management sees them, and the energy it counts."""
    gain = 1 + 0.003 * rng.normal()
    offset_a = 0.1 * rng.normal()
    true_a = truth.pack.current_a
    current_a = true_a * gain + offset_a + 0.2 * rng.normal(size=len(true_a))
    voltage_v = truth.pack.voltage_v + wander(motion.trip, motion.second, 0.3, 120, rng)
    return {
        # The energy counter samples faster than the log, so it does not see the log's rounding.
        "energy_wh": voltage_v * current_a / 3600,
        "voltage_v": rounded(voltage_v, 0.5),
        "current_a": rounded(current_a, 0.5),
        "soc": rounded(truth.pack.soc, 0.001),
    }


def _near(distance_m: FloatArray, points: IntArray) -> FloatArray:
    """1 where a distance is within `AT_NODE_M` of one of the ascending points, else 0."""
    marks_m = np.concatenate([[-np.inf], points * STEP_M, [np.inf]])
    after = np.searchsorted(marks_m, distance_m)
    gap_m = np.minimum(distance_m - marks_m[after - 1], marks_m[after] - distance_m)
    return np.where(gap_m <= AT_NODE_M, 1.0, 0.0)


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
