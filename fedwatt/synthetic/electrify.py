"""Virtual electrification: recorded drives as an electric vehicle would have driven them.

Any 1 Hz speed trace with an outside temperature will do; climate and pack are the electric
vehicle's own. Where the road's grade is not recorded it is taken as level. The energy is simulated
and must be marked so wherever it goes.

A truck or bus follows a car's trace as well as it can: no faster, never ahead of its own
acceleration and braking, and a bus halts now and then in town. It keeps the trace's clock, so the
same trips last as long whatever drives them, but it covers less distance: a truck a few per cent,
a bus a third or more.

A vehicle keeps its name and its trips' names whatever kind it is driven as, and trips are split by
these names: a car, truck and bus made of the same recording train, validate and test on the same
trips.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from fedwatt.errors import DataError
from fedwatt.randomness import generator
from fedwatt.synthetic.battery import supply
from fedwatt.synthetic.vehicle import (
    DUTIES,
    Duty,
    VehicleParameters,
    charge_between_trips,
    climate_power_w,
    draw_vehicle,
    traction_power_w,
    wheel_power_w,
)
from fedwatt.telemetry.channels import CHANNELS
from fedwatt.telemetry.trip import FloatArray, Trip, Vehicle

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


# A vehicle gets a larger pack than its class's where it cannot drive a trip: leaving the trip out
# would give each kind another split, and labels clipped at its limits would belong to no vehicle.
MOST_UNMET = 0.01
LARGER = 1.3
LARGER_PACKS = 10


def electrified_vehicle(recording: Vehicle, *, kind: str = "passenger", seed: int = 0) -> Vehicle:
    """Return the recorded drives as an electric vehicle of a kind would have driven them.

    Its class and parameters are drawn from `seed` and its name; its pack is larger than usual where
    its trips need it. Energy is always simulated, also where the recording has measured energy.
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
    description = {
        "source": f"{recording.facts.get('source', 'recorded')} driving, electrified, seed {seed}",
        "model": model,
        "powertrain": "ev",
        "mass_kg": round(parameters.mass_kg, 1),
        "pack_capacity_wh": round(parameters.pack.capacity_wh, 1),
        "recorded_powertrain": recording.facts.get("powertrain", "unknown"),
    }
    return Vehicle(name, made, kind, "simulated", description)


def electrified_vehicles(
    recordings: Iterable[Vehicle], *, kind: str = "passenger", seed: int = 0
) -> Iterator[Vehicle]:
    """Each recording as an electric vehicle, one at a time."""
    return (electrified_vehicle(each, kind=kind, seed=seed) for each in recordings)


def _inputs(vehicle: str, trip: Trip, speed_mps: FloatArray) -> dict[str, FloatArray]:
    """Return the inputs and positions that road and weather give, without labels."""
    if "ambient_c" not in trip.channels:
        raise DataError(
            f"Vehicle '{vehicle}', trip '{trip.name}' has no channel 'ambient_c', which heating "
            "and cooling need. Import it with outside temperature, or fill it with a usual value."
        )
    input_names = [name for name in trip.channels if CHANNELS[name].role != "label"]
    return {**{name: trip.channels[name] for name in input_names}, "speed_mps": speed_mps}
