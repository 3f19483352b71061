"""Power of a drive: road, cabin and electronics, at the pack."""

from dataclasses import dataclass

import numpy as np

from fedwatt.synthetic.arrays import FloatArray
from fedwatt.synthetic.battery import PackTrace, supply
from fedwatt.synthetic.cabin import climate_power_w
from fedwatt.synthetic.charging import charge_between_trips
from fedwatt.synthetic.driver import Motion
from fedwatt.synthetic.duty import DUTIES
from fedwatt.synthetic.parameters import VehicleParameters
from fedwatt.synthetic.roadload import traction_power_w, wheel_power_w
from fedwatt.synthetic.routes import Path
from fedwatt.synthetic.sensors import wander


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
