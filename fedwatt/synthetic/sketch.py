"""Simplified driving for very large fleets: a vehicle takes a fraction of a millisecond.

The built-in town, with roads, routes, drivers and packs, takes about 16 ms per vehicle. Here a trip
is a row of stretches with a target speed and a slope, driven within a driver's acceleration and
braking; energy is road load over the efficiency of the drive, with recuperation, cabin and
electronics. Vehicles differ in mass, drag, tyres, losses, driver, roads and climate. There is no
map: no elevation can be learned, and two vehicles never drive the same road.

All trips of all vehicles advance together, second by second. Every number is a function of its
vehicle's key alone, made by additions, products, quotients and comparisons: a vehicle is the same
to the last bit in every batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import SettingError
from fedwatt.randomness import key_of
from fedwatt.synthetic.fleet import TownVehicles
from fedwatt.synthetic.vehicle import GRAVITY_MPS2
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray, Trip, Vehicle

AIR_KG_PER_M3 = 1.2  # at 20 °C
ROTATING = 1.05  # wheels and motor as a share of the mass that is accelerated
TRIP_S = (378, 323)  # shortest, and how much longer at most
STRETCH_S = (15, 30)
LIMITS_MPS = np.array([30.0, 50.0, 50.0, 70.0, 100.0, 120.0]) / 3.6
STANDING = 0.22  # share of stretches that are a stop
STEEPEST = 0.05
FADE_MPS = 15.0  # comfortable acceleration is half of that at rest at this speed
RECUPERATED_W = 50_000.0  # at most
COMFORT_C = (18.0, 23.0)
CLIMATE_W_PER_C = 90.0


@dataclass(frozen=True, eq=False)
class _Vehicles:
    """Properties that differ between vehicles; each [vehicles, 1]."""

    mass_kg: FloatArray
    drag_area_m2: FloatArray
    rolling: FloatArray
    efficiency: FloatArray
    recuperation: FloatArray
    auxiliary_w: FloatArray
    accelerating_mps2: FloatArray
    braking_mps2: FloatArray
    speed_factor: FloatArray
    climate_c: FloatArray
    country: FloatArray  # from 0, mostly in town, to 1, mostly on fast roads


def uniforms(keys: NDArray[np.uint64], purpose: int, count: int) -> FloatArray:
    """Return `count` numbers in [0, 1) for each of `keys` [n] and a purpose, [n, count].

    SplitMix64 of a counter (Steele et al., OOPSLA 2014), which needs no state.
    """
    counter = np.arange(count, dtype=np.uint64) + np.uint64(purpose << 32)
    x = keys[:, None] + (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(((x ^ (x >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53)


def sketch(keys: NDArray[np.uint64], trips: int) -> tuple[IntArray, dict[str, FloatArray]]:
    """Return the seconds of each trip, [vehicles, trips], and channels of the vehicles of `keys`.

    Channels are [seconds, vehicles, trips]; a trip ends after its own number of seconds.
    """
    vehicles = _drawn(keys)
    shape = (len(keys), trips)
    seconds = TRIP_S[0] + (TRIP_S[1] * uniforms(keys, 1, trips)).astype(np.int64)
    longest = int(seconds.max())
    desired_mps, slope = _stretches(keys, vehicles, trips, longest)
    speed, moved, gained, grade = _driven(vehicles, desired_mps, slope)
    begun_c, later_c = (uniforms(keys, purpose, trips) for purpose in (2, 3))
    clock_s = np.arange(longest, dtype=float)[:, None, None]
    ambient = vehicles.climate_c + 8 * (begun_c - 0.5) + (later_c - 0.5) * clock_s / 600
    settling = 0.3 + 0.7 / (1 + clock_s / 240)
    heater = CLIMATE_W_PER_C * np.maximum(COMFORT_C[0] - ambient, 0.0) * settling
    ac = CLIMATE_W_PER_C * np.maximum(ambient - COMFORT_C[1], 0.0) * settling
    driving = _traction_w(vehicles, moved, gained, grade, ambient)
    # Influences that no channel records: gusts, bends, the temperature of the pack.
    unknown = _by_second(keys, 4, longest, shape) + _by_second(keys, 5, longest, shape) - 1
    power = driving * (1 + 0.05 * unknown) + heater + ac + vehicles.auxiliary_w
    return seconds, {
        "speed_mps": np.round(speed * 10) / 10,
        "ambient_c": np.round(ambient * 2) / 2,
        "ac_w": np.round(ac / 50) * 50,
        "heater_w": np.round(heater / 50) * 50,
        "energy_wh": power / 3600,
    }


def _drawn(keys: NDArray[np.uint64]) -> _Vehicles:
    draw = uniforms(keys, 0, 11).T[..., None]
    lowest = (1250, 0.55, 0.008, 0.80, 0.50, 180, 1.2, 1.3, 0.88, -4, 0)
    more = (950, 0.30, 0.005, 0.12, 0.30, 320, 1.2, 1.0, 0.25, 28, 1)
    return _Vehicles(*(a + b * u for a, b, u in zip(lowest, more, draw, strict=True)))


def _stretches(
    keys: NDArray[np.uint64], vehicles: _Vehicles, trips: int, longest: int
) -> tuple[FloatArray, FloatArray]:
    """Return target speed and slope in every second, [seconds, vehicles, trips] each."""
    count = -(-sum(TRIP_S) // STRETCH_S[0])  # enough for the longest trip of any batch
    shape = (len(keys), trips, count)
    lasting, kind, free, rising, falling = (
        uniforms(keys, purpose, trips * count).reshape(shape) for purpose in range(6, 11)
    )
    # Vehicles of the country draw from the faster roads.
    road = (free + vehicles.country[..., None]) / 2 * len(LIMITS_MPS)
    limit = LIMITS_MPS[road.astype(np.int64)] * vehicles.speed_factor[..., None]
    desired_mps = np.where(kind < STANDING, 0.0, limit * (0.75 + 0.25 * kind))
    until = np.cumsum(STRETCH_S[0] + (STRETCH_S[1] * lasting).astype(np.int64), axis=-1)
    change = np.zeros((longest + 1, *shape[:2]), dtype=np.int64)
    vehicle, trip, _ = np.indices(shape)
    change[np.minimum(until, longest), vehicle, trip] = 1
    number = np.cumsum(change[:longest], axis=0)
    place = np.arange(len(keys))[:, None], np.arange(trips)
    ripple = 1 + 0.06 * (_by_second(keys, 11, longest, shape[:2]) - 0.5)
    return desired_mps[*place, number] * ripple, (STEEPEST * (rising - falling))[*place, number]


def _by_second(
    keys: NDArray[np.uint64], purpose: int, longest: int, shape: tuple[int, ...]
) -> FloatArray:
    """Return a number in [0, 1) for every second of every trip, [seconds, vehicles, trips].

    A trip's numbers do not depend on the length of other trips.
    """
    most = sum(TRIP_S)
    drawn = uniforms(keys, purpose, shape[1] * most).reshape(*shape, most)
    return np.ascontiguousarray(drawn[..., :longest].transpose(2, 0, 1))


def _driven(
    vehicles: _Vehicles, desired_mps: FloatArray, slope: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return speed at the end of a second, distance and gain of speed in it, and slope."""
    speed = np.empty_like(desired_mps)
    grade = np.empty_like(slope)
    here = np.zeros(desired_mps.shape[1:])
    slope_now = np.zeros(slope.shape[1:])
    slower = -vehicles.braking_mps2
    for second, (goal, rise) in enumerate(zip(desired_mps, slope, strict=True)):
        faster = vehicles.accelerating_mps2 / (1 + here * here * (1 / FADE_MPS**2))
        here = here + np.minimum(np.maximum(goal - here, slower), faster)
        slope_now = slope_now + 0.08 * (rise - slope_now)
        speed[second] = here
        grade[second] = slope_now
    before = np.concatenate([np.zeros_like(speed[:1]), speed[:-1]])
    return speed, (before + speed) / 2, speed - before, grade


def _traction_w(
    vehicles: _Vehicles,
    moved_m: FloatArray,
    gained_mps: FloatArray,
    grade: FloatArray,
    ambient_c: FloatArray,
) -> FloatArray:
    """Return the traction power at the pack, negative when braking, [seconds, vehicles, trips]."""
    weight = vehicles.mass_kg * GRAVITY_MPS2
    density = AIR_KG_PER_M3 * 293.15 / (273.15 + ambient_c)
    force = vehicles.mass_kg * ROTATING * gained_mps + weight * (vehicles.rolling + grade)
    wheel_w = (force + density / 2 * vehicles.drag_area_m2 * moved_m * moved_m) * moved_m
    driving: BoolArray = wheel_w > 0
    back_w = wheel_w * vehicles.recuperation * np.minimum(moved_m / 5, 1.0)
    return np.where(driving, wheel_w / vehicles.efficiency, np.maximum(back_w, -RECUPERATED_W))


@dataclass(frozen=True)
class SketchedVehicles(TownVehicles):
    """The first `number` sketched vehicles; six trips are about 1,900 training windows."""

    data: ClassVar[str] = "sketch"
    made: ClassVar[str] = "sketched"
    at_once: ClassVar[int] = 24  # twenty take as long as five, and fit into the cache

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind != "passenger":
            raise SettingError(f"Only passenger cars are sketched; a {self.kind} is 'synthetic'.")

    def vehicles(self, places: Sequence[int]) -> list[Vehicle]:
        """Return the vehicles at these places, computed together."""
        names = [self.name(place) for place in places]
        keys = [key_of(self.seed, "sketch", name) % 2**64 for name in names]
        seconds, channels = sketch(np.array(keys, dtype=np.uint64), self.trips)
        facts = {"source": f"sketched, seed {self.seed}", "powertrain": "ev"}
        made = []
        for row, vehicle in enumerate(names):
            trips = tuple(
                Trip(
                    f"trip-{n + 1:03d}",
                    {name: trace[: seconds[row, n], row, n] for name, trace in channels.items()},
                )
                for n in range(self.trips)
            )
            made.append(Vehicle(vehicle, trips, "passenger", "simulated", facts))
        return made
