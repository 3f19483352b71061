"""Telemetry of a drive: the truth as the vehicle's sensors, map and battery management log it."""

import numpy as np
from numpy.random import Generator

from fedwatt.synthetic.arrays import FloatArray, IntArray
from fedwatt.synthetic.consumption import Truth
from fedwatt.synthetic.driver import Motion
from fedwatt.synthetic.routes import STEP_M, Path
from fedwatt.synthetic.sensors import rounded, wander
from fedwatt.synthetic.town import degrees

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
