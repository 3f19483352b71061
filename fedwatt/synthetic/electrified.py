"""Recorded drives electrified: vehicles with real speed and simulated energy.

A vehicle keeps its name and its trips' names whatever kind it is driven as, and trips are split by
these names: a car, truck and bus made of the same recording train, validate and test on the same
trips.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from fedwatt.errors import DataError
from fedwatt.randomness import generator
from fedwatt.synthetic.classes import draw_vehicle
from fedwatt.synthetic.duty import DUTIES
from fedwatt.synthetic.electrify import electrify, followed
from fedwatt.telemetry.channels import CHANNELS
from fedwatt.telemetry.trip import FloatArray, Trip, Vehicle

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
