"""The built-in fleet: electric vehicles of one town, ready to use without any data at hand.

Each vehicle has its own mass, drag, losses and pack, its own driver, its own errands, rounds or
line, and its own part of the year; they share the town, its elevation and its weather. All draws
are keyed by the vehicle's name, so a vehicle is the same in a fleet of three and of ten thousand.

`consume` computes the true power of all trips, and `record` what sensors, map and battery
management log of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from fedwatt.errors import SettingError, counted, unknown
from fedwatt.randomness import generator
from fedwatt.synthetic.battery import PackTrace, charge_between_trips, supply
from fedwatt.synthetic.driver import Motion, draw_style, drive
from fedwatt.synthetic.routes import STEP_M, Path, itinerary, trace
from fedwatt.synthetic.town import degrees, town, trip_temperatures_c
from fedwatt.synthetic.vehicle import (
    DUTIES,
    Duty,
    VehicleParameters,
    climate_power_w,
    draw_vehicle,
    traction_power_w,
    wheel_power_w,
)
from fedwatt.telemetry.trip import FloatArray, IntArray, Trip, Vehicle
from fedwatt.windows.client import DataSettings, Fleet
from fedwatt.windows.lazy import Maker

USUAL_TRIPS = 40  # of a synthetic vehicle
AT_NODE_M = 15.0
PREFIXES = {"passenger": "car", "truck": "truck", "bus": "bus"}


@dataclass(frozen=True)
class TownVehicles(Maker):
    """The first `number` vehicles of the town of `seed`, each with `trips` trips."""

    number: int
    seed: int
    trips: int
    kind: str = field(default="passenger", repr=False)  # keeps digests of passenger fleets

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
        return f"synthetic, {what} with {self.trips} trips each, seed {self.seed}"

    @property
    def origin(self) -> Mapping[str, str | int]:
        """The section [fleet] that makes passenger cars again; empty for trucks and buses."""
        sizes = {"vehicles": self.number, "seed": self.seed, "trips": self.trips}
        return {"data": "synthetic", **sizes} if self.kind == "passenger" else {}

    @property
    def count(self) -> int:
        """Number of vehicles."""
        return self.number

    def name(self, place: int) -> str:
        """Return "car-001" for the first place, and so on."""
        return f"{PREFIXES[self.kind]}-{place + 1:03d}"

    def vehicles(self, places: Sequence[int]) -> list[Vehicle]:
        """Return the vehicles at these places, with their trips."""
        return [
            synthetic_vehicle(self.name(place), seed=self.seed, trips=self.trips, kind=self.kind)
            for place in places
        ]


def synthetic_vehicles(
    vehicles: int, seed: int = 0, *, trips: int = USUAL_TRIPS, kind: str = "passenger"
) -> Iterator[Vehicle]:
    """Make vehicles "car-001", ... (or "truck-", "bus-") of the town of `seed`, one by one.

    A vehicle does not depend on how many are made.
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
    """Return a fleet of `vehicles` synthetic vehicles; without settings, the default ones."""
    return TownVehicles(vehicles, seed, trips, kind).fleet(settings)


def synthetic_vehicle(
    name: str, *, seed: int = 0, trips: int = USUAL_TRIPS, kind: str = "passenger"
) -> Vehicle:
    """Return the vehicle `name` in the town of `seed`, from its roads to its telemetry."""
    home = town(seed)
    duty = DUTIES[kind]
    model, vehicle = draw_vehicle(kind, generator(seed, "vehicle", name))
    style = draw_style(generator(seed, "driver", name), duty)
    mix, paths = itinerary(home, seed, name, trips, kind)
    path = trace(home, paths)
    motion = drive(path, style, generator(seed, "driving", name), duty)
    outside_c = trip_temperatures_c(name, seed, trips)
    truth = consume(vehicle, duty, path, motion, outside_c, generator(seed, "trips", name))
    channels = record(path, motion, truth, generator(seed, "sensors", name))
    cuts = np.flatnonzero(np.diff(motion.trip)) + 1
    pieces = {channel: np.split(values, cuts) for channel, values in channels.items()}
    facts = {
        "source": f"synthetic, seed {seed}",
        "model": model,
        **vehicle.facts,
        "drag_area_m2": round(vehicle.drag_area_m2, 4),
        "route_mix": mix,
    }
    recorded = tuple(
        Trip(f"trip-{n + 1:03d}", {channel: parts[n] for channel, parts in pieces.items()})
        for n in range(trips)
    )
    return Vehicle(name, recorded, kind, "simulated", facts)


def rounded(values: FloatArray, resolution: float) -> FloatArray:
    """Round to the nearest multiple of the resolution.

    >>> rounded(np.array([0.26, -0.6]), 0.5)
    array([ 0.5, -0.5])
    """
    return np.round(values / resolution) * resolution


def wander(
    trip: IntArray, second: IntArray, spread: float, memory_s: int, rng: Generator
) -> FloatArray:
    """Draw a slow error of about `spread` that lasts about `memory_s`, anew for each trip."""
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
    duty: Duty,
    path: Path,
    motion: Motion,
    outside_c: FloatArray,
    rng: Generator,
) -> Truth:
    """Return temperature, climate power and the pack's response; `outside_c` is [trips]."""
    drift_c = wander(motion.trip, motion.second, 0.4, 300, rng)
    ambient_c = outside_c[motion.trip] + drift_c
    payload_kg = duty.draw_payload_kg(len(outside_c), rng)[motion.trip]
    heater_w, ac_w = climate_power_w(vehicle, ambient_c, motion.second.astype(float))

    # Distance, speed gained and height climbed in a second give the exact means over it.
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


def record(path: Path, motion: Motion, truth: Truth, rng: Generator) -> dict[str, FloatArray]:
    """Return the channels of all trips in a row, each float64 [seconds]."""
    seconds = len(motion.trip)
    calibration = 1 + 0.01 * rng.normal()
    speed_mps = motion.speed_mps * (calibration + 0.003 * rng.normal(size=seconds))
    # A thermometer behind the bumper reads a little high.
    bias_c = rng.uniform(-0.5, 1.5)
    elevation_m = path.at(path.elevation_m, motion.distance_m)
    elevation_m = elevation_m + wander(motion.trip, motion.second, 0.5, 60, rng)
    grade = path.at(np.gradient(path.elevation_m, STEP_M), motion.distance_m)
    on = np.minimum((motion.distance_m / STEP_M).astype(np.int64), len(path.limit_mps) - 1)
    channels = {
        "speed_mps": rounded(speed_mps, 0.1),
        "ambient_c": rounded(truth.ambient_c + bias_c, 0.5),
        "ac_w": rounded(truth.ac_w, 50.0),
        "heater_w": rounded(truth.heater_w, 50.0),
        "elevation_m": rounded(elevation_m, 0.1),
        "grade": rounded(grade + 0.002 * rng.normal(size=seconds), 0.0005),
        "speed_limit_mps": path.limit_mps[on],
        "intersection": _near(motion.distance_m, path.pass_point[path.intersection]),
        "bus_stop": _near(motion.distance_m, path.pass_point[path.bus_stop]),
        "focus_point": _near(motion.distance_m, path.pass_point[path.stop_kind > 0]),
    }
    east_m, north_m = (
        path.at(true_m, motion.distance_m)
        + wander(motion.trip, motion.second, 2.5, 30, rng)
        + 0.3 * rng.normal(size=seconds)
        for true_m in (path.x_m, path.y_m)
    )
    latitude_deg, longitude_deg = degrees(east_m, north_m)
    channels["latitude_deg"] = rounded(latitude_deg, 1e-6)
    channels["longitude_deg"] = rounded(longitude_deg, 1e-6)
    return channels | _pack_channels(motion, truth, rng)


def _pack_channels(motion: Motion, truth: Truth, rng: Generator) -> dict[str, FloatArray]:
    """Return voltage, current, charge and energy as the battery management measures them."""
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
    """Return 1 where a distance is within `AT_NODE_M` of one of the ascending points, else 0."""
    marks_m = np.concatenate([[-np.inf], points * STEP_M, [np.inf]])
    after = np.searchsorted(marks_m, distance_m)
    gap_m = np.minimum(distance_m - marks_m[after - 1], marks_m[after] - distance_m)
    return np.where(gap_m <= AT_NODE_M, 1.0, 0.0)
