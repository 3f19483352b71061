"""Virtual electrification: the energy an electric vehicle would have used on a recorded drive.

Any 1 Hz speed trace with an outside temperature will do; climate and pack are the electric
vehicle's own. Where the road's grade is not recorded it is taken as level. The energy is simulated
and must be marked so wherever it goes.

A truck or bus follows a car's trace as well as it can: no faster, never ahead of its own
acceleration and braking, and a bus halts now and then in town. It keeps the trace's clock, so the
same trips last as long whatever drives them, but it covers less ground: a truck a few per cent,
a bus a third or more.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fedwatt.synthetic.arrays import FloatArray
from fedwatt.synthetic.battery import supply
from fedwatt.synthetic.cabin import climate_power_w
from fedwatt.synthetic.charging import charge_between_trips
from fedwatt.synthetic.duty import Duty
from fedwatt.synthetic.parameters import VehicleParameters
from fedwatt.synthetic.roadload import traction_power_w, wheel_power_w

Channels = Mapping[str, FloatArray]

# a₀ of the fastest car a trace may come from, m/s², and the speed at which a₀ has halved.
ACCELERATING_MPS2 = 2.2
ACCELERATING_FADE_MPS = 15.0
BRAKING_MPS2 = 2.8
BRAKING_FADE_MPS = 25.0
HALT_EVERY_M = (400.0, 900.0)
NO_HALT_ABOVE_MPS = 60 / 3.6
AROUND_S = 61


@dataclass(frozen=True, eq=False)
class ElectricDrive:
    """Channels of one electrified trip, each [seconds], and how much of its demand went unmet."""

    channels: dict[str, FloatArray]
    unmet: float  # share of the energy asked for when driving


def mean_motion(speed_mps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean speed and speed gained in the second that ends at each sample, both [seconds].

    >>> mean_motion(np.array([1.0, 3.0, 2.0]))
    (array([1. , 2. , 2.5]), array([ 0.,  2., -1.]))
    """
    before = np.concatenate([speed_mps[:1], speed_mps[:-1]])
    return (speed_mps + before) / 2, speed_mps - before


def driving_power_w(
    vehicle: VehicleParameters, channels: Channels, payload_kg: float = 0.0
) -> FloatArray:
    """Electric power of the drivetrain over one trip [seconds], on the level if it has no grade."""
    mean_mps, gained_mps = mean_motion(channels["speed_mps"])
    ambient_c = channels["ambient_c"]
    grade = channels.get("grade", np.zeros_like(mean_mps))
    wheel_w = wheel_power_w(vehicle, mean_mps, gained_mps, grade, ambient_c, payload_kg)
    return traction_power_w(vehicle, wheel_w, mean_mps, ambient_c)


def electrify(
    vehicle: VehicleParameters,
    trips: Sequence[Channels],
    payload_kg: FloatArray,
    rng: np.random.Generator,
) -> list[ElectricDrive]:
    """Drive the trips in order with one vehicle, charging it in between when it needs to.

    A trip needs `speed_mps` and `ambient_c`, and keeps its other inputs; `payload_kg` is [trips].
    """
    climate = []
    demands_w = []
    for trip, load in zip(trips, payload_kg, strict=True):
        clock_s = np.arange(len(trip["speed_mps"]), dtype=float)
        heater_w, ac_w = climate_power_w(vehicle, trip["ambient_c"], clock_s)
        driving_w = driving_power_w(vehicle, trip, float(load))
        climate.append((heater_w, ac_w))
        demands_w.append(driving_w + heater_w + ac_w + vehicle.auxiliary_w)
    demand_w = np.concatenate(demands_w)
    number = np.repeat(np.arange(len(trips)), [len(trip) for trip in demands_w])
    drives = charge_between_trips(vehicle.pack, number, demand_w, rng)
    trace = supply(vehicle.pack, demand_w, drives)
    power_w = trace.power_w
    energy_wh = trace.energy_wh
    electric = []
    bounds = pairwise([*drives.first.tolist(), len(demand_w)])
    for trip, (heater_w, ac_w), (start, stop) in zip(trips, climate, bounds, strict=True):
        rows = slice(start, stop)
        asked_w = np.maximum(demand_w[rows], 0.0)
        short_w = asked_w - np.maximum(power_w[rows], 0.0)
        channels = {
            **trip,
            "heater_w": heater_w,
            "ac_w": ac_w,
            "energy_wh": energy_wh[rows],
            "voltage_v": trace.voltage_v[rows],
            "current_a": trace.current_a[rows],
            "soc": trace.soc[rows],
        }
        electric.append(ElectricDrive(channels, float(short_w.sum() / max(asked_w.sum(), 1.0))))
    return electric


def followed(speed_mps: FloatArray, duty: Duty, rng: np.random.Generator) -> FloatArray:
    """Speed of a vehicle of this duty that follows a car's trace, never faster; [seconds]."""
    if math.isinf(duty.top_mps):
        return speed_mps  # a car follows a car as it is
    desired_mps = np.minimum(speed_mps, duty.top_mps)
    if duty.halts:
        desired_mps = _with_halts(desired_mps, duty, rng)
    clock = np.arange(len(desired_mps), dtype=float)
    forward = duty.accelerating * ACCELERATING_MPS2, ACCELERATING_FADE_MPS
    late = np.minimum.accumulate(run_up_s(desired_mps, *forward) - clock) + clock
    backward = duty.braking * BRAKING_MPS2, BRAKING_FADE_MPS
    need = run_up_s(reached_mps(late, *forward), *backward) + clock
    reached = reached_mps(np.minimum.accumulate(need[::-1])[::-1] - clock, *backward)
    return np.minimum(reached, desired_mps)


def run_up_s(speed_mps: FloatArray, from_rest_mps2: float, fade_mps: float) -> FloatArray:
    """Time to reach a speed from rest at an acceleration of a₀ / (1 + v²/v₀²).

    >>> float(run_up_s(np.array(3.0), 1.0, 3.0))
    4.0
    """
    return (speed_mps + speed_mps**3 / (3 * fade_mps**2)) / from_rest_mps2


def reached_mps(run_up: FloatArray, from_rest_mps2: float, fade_mps: float) -> FloatArray:
    """Speed reached from rest after a time: the real root of a cubic, inverse of `run_up_s`."""
    along = 1.5 * from_rest_mps2 * np.maximum(run_up, 0.0) / fade_mps
    return 2 * fade_mps * np.sinh(np.arcsinh(along) / 3)


def _with_halts(desired_mps: FloatArray, duty: Duty, rng: np.random.Generator) -> FloatArray:
    """Stand still every few hundred metres, except on fast roads; [seconds]."""
    way_m = np.cumsum(desired_mps)
    stops = int(way_m[-1] / HALT_EVERY_M[0]) + 1
    at_m = np.cumsum(rng.uniform(*HALT_EVERY_M, stops))
    stay_s = np.ceil(duty.halt_s * rng.gamma(4.0, 0.25, stops)).astype(int)
    padded = np.pad(desired_mps, AROUND_S // 2, mode="edge")
    around = np.convolve(padded, np.ones(AROUND_S) / AROUND_S, "valid")
    halting = desired_mps.copy()
    for begin, stay in zip(np.searchsorted(way_m, at_m), stay_s, strict=True):
        if begin < len(desired_mps) and around[begin] < NO_HALT_ABOVE_MPS:
            halting[begin : begin + stay] = 0.0
    return halting
