"""Telemetry of a drive: its true power, and what sensors, map and battery management log of it."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedwatt.synthetic.battery import PackTrace, supply
from fedwatt.synthetic.driver import Motion
from fedwatt.synthetic.energy import (
    charge_between_trips,
    climate_power_w,
    traction_power_w,
    wheel_power_w,
)
from fedwatt.synthetic.routes import STEP_M, Path
from fedwatt.synthetic.town import degrees
from fedwatt.synthetic.vehicle import DUTIES, VehicleParameters
from fedwatt.telemetry.trip import FloatArray, IntArray


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
