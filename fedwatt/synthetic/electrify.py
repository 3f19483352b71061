"""Virtual electrification: recorded drives as an electric vehicle would have driven them.

A trace needs speed at 1 Hz and the outside temperature; climate and pack are those of the electric
vehicle. A road without a recorded grade counts as level. The energy is simulated and must be marked
so in every result.

A truck or bus follows a car's trace as well as it can: no faster, within its own acceleration and
braking, and a bus halts now and then in town. It keeps the trace's clock, so a trip lasts as long
for every kind of vehicle, but covers less distance: a few per cent less for a truck, a third or
more for a bus.

A vehicle keeps its name and its trips' names whatever kind it is driven as, and trips are split by
these names: a car, truck and bus made of the same recording train, validate and test on the same
trips.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from fedwatt.errors import DataError
from fedwatt.randomness import generator
from fedwatt.synthetic.battery import charge_between_trips, supply
from fedwatt.synthetic.driver import (
    ACCELERATING_FADE_MPS,
    BRAKING_FADE_MPS,
    Effort,
    feasible,
)
from fedwatt.synthetic.vehicle import (
    DUTIES,
    Duty,
    VehicleParameters,
    climate_power_w,
    draw_vehicle,
    traction_power_w,
    wheel_power_w,
)
from fedwatt.telemetry.channels import CHANNELS
from fedwatt.telemetry.trip import FloatArray, Trip, Vehicle

Channels = Mapping[str, FloatArray]

# a₀ of the fastest car that a trace may come from.
ACCELERATING_MPS2 = 2.2
BRAKING_MPS2 = 2.8
HALT_EVERY_M = (400.0, 900.0)
NO_HALT_ABOVE_MPS = 60 / 3.6
AROUND_S = 61


@dataclass(frozen=True, eq=False)
class ElectricDrive:
    """Channels of one electrified trip, each [seconds], and how much of its demand went unmet."""

    channels: dict[str, FloatArray]
    unmet: float  # share of the energy asked for when driving


def mean_motion(speed_mps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean speed and speed gained in the second that ends at each sample, both [seconds].

    >>> mean_motion(np.array([1.0, 3.0, 2.0]))
    (array([1. , 2. , 2.5]), array([ 0.,  2., -1.]))
    """
    before = np.concatenate([speed_mps[:1], speed_mps[:-1]])
    return (speed_mps + before) / 2, speed_mps - before


def driving_power_w(
    vehicle: VehicleParameters, channels: Channels, payload_kg: float = 0.0
) -> FloatArray:
    """Return the drivetrain's electric power in a trip [seconds]; without grade on the level."""
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
    """Drive the trips in order with one vehicle, which is charged in between where needed.

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
    supplied = {
        "energy_wh": trace.energy_wh,
        "voltage_v": trace.voltage_v,
        "current_a": trace.current_a,
        "soc": trace.soc,
    }
    short_w = np.maximum(demand_w, 0.0) - np.maximum(trace.power_w, 0.0)
    electric = []
    bounds = pairwise([*drives.first.tolist(), len(demand_w)])
    for trip, (heater_w, ac_w), (start, stop) in zip(trips, climate, bounds, strict=True):
        rows = slice(start, stop)
        demanded = max(np.maximum(demand_w[rows], 0.0).sum(), 1.0)
        channels = {**trip, "heater_w": heater_w, "ac_w": ac_w}
        channels |= {name: values[rows] for name, values in supplied.items()}
        electric.append(ElectricDrive(channels, float(short_w[rows].sum() / demanded)))
    return electric


def followed(speed_mps: FloatArray, duty: Duty, rng: np.random.Generator) -> FloatArray:
    """Return the speed of a vehicle of this duty that follows a car's trace, [seconds]."""
    if math.isinf(duty.top_mps):
        return speed_mps  # a car follows a car as it is
    desired_mps = np.minimum(speed_mps, duty.top_mps)
    if duty.halts:
        desired_mps = _with_halts(desired_mps, duty, rng)
    forward = TimedEffort(duty.accelerating * ACCELERATING_MPS2, ACCELERATING_FADE_MPS)
    backward = TimedEffort(duty.braking * BRAKING_MPS2, BRAKING_FADE_MPS)
    clock_s = np.arange(len(desired_mps), dtype=float)
    return np.minimum(feasible(desired_mps, clock_s, forward, backward), desired_mps)


class TimedEffort(Effort):
    """An effort whose run-up is the time from rest, in place of the distance."""

    def run_up(self, speed_mps: FloatArray) -> FloatArray:
        """Return the time to reach a speed from rest.

        >>> float(TimedEffort(1.0, 3.0).run_up(np.array(3.0)))
        4.0
        """
        return (speed_mps + speed_mps**3 / (3 * self.fade_mps**2)) / self.from_rest_mps2

    def reached_mps(self, run_up: FloatArray) -> FloatArray:
        """Return the speed reached from rest after a time: the real root of a cubic."""
        along = 1.5 * self.from_rest_mps2 * np.maximum(run_up, 0.0) / self.fade_mps
        return 2 * self.fade_mps * np.sinh(np.arcsinh(along) / 3)


def _with_halts(desired_mps: FloatArray, duty: Duty, rng: np.random.Generator) -> FloatArray:
    """Insert halts every few hundred metres, except on fast roads; [seconds]."""
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


# A vehicle that cannot drive a trip gets a larger pack than its class has: without the trip each
# kind would have another split, and labels clipped at the pack's limits would belong to no vehicle.
MOST_UNMET = 0.01
LARGER = 1.3
LARGER_PACKS = 10


def electrified_vehicle(recording: Vehicle, *, kind: str = "passenger", seed: int = 0) -> Vehicle:
    """Return the recorded drives as an electric vehicle of a kind would have driven them.

    Class and parameters are drawn from `seed` and the name; the pack is larger than usual where the
    trips need it. Energy is always simulated, even where the recording has measured energy.
    """
    name = recording.name
    trips = recording.trips
    model, parameters = draw_vehicle(kind, generator(seed, "electric vehicle", name, kind))
    duty = DUTIES[kind]
    inputs = []
    payload_kg = []
    for trip in trips:
        rng = generator(seed, "electric trip", name, kind, trip.name)
        payload_kg.append(float(duty.draw_payload_kg(1, rng)[0]))
        inputs.append(_inputs(name, trip, followed(trip.channels["speed_mps"], duty, rng)))
    for _ in range(LARGER_PACKS):
        charging = generator(seed, "electric charging", name, kind)
        drives = electrify(parameters, inputs, np.array(payload_kg), charging)
        unmet = [drive.unmet for drive in drives]
        if max(unmet, default=0.0) <= MOST_UNMET:
            break
        larger = parameters.pack.cell.scaled(LARGER)
        parameters = replace(parameters, pack=replace(parameters.pack, cell=larger))
    else:
        worst = trips[int(np.argmax(unmet))].name
        raise DataError(
            f"Vehicle '{name}', trip '{worst}': even a pack of "
            f"{parameters.pack.capacity_wh:.0f} Wh cannot drive it. Cut the trip, or look for "
            "impossible speeds in it."
        )
    pairs = zip(trips, drives, strict=True)
    made = tuple(replace(trip, channels=drive.channels) for trip, drive in pairs)
    facts = {
        "source": f"{recording.facts.get('source', 'recorded')} driving, electrified, seed {seed}",
        "model": model,
        **parameters.facts,
        "recorded_powertrain": recording.facts.get("powertrain", "unknown"),
    }
    return Vehicle(name, made, kind, "simulated", facts)


def _inputs(vehicle: str, trip: Trip, speed_mps: FloatArray) -> dict[str, FloatArray]:
    """Return the channels of road and weather with the new speed, without labels."""
    if "ambient_c" not in trip.channels:
        raise DataError(
            f"Vehicle '{vehicle}', trip '{trip.name}' has no channel 'ambient_c', which heating "
            "and cooling need. Import it with outside temperature, or fill it with a usual value."
        )
    input_names = [name for name in trip.channels if CHANNELS[name].role != "label"]
    return {**{name: trip.channels[name] for name in input_names}, "speed_mps": speed_mps}
