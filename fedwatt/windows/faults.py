"""Spoil the training data of some vehicles, to see what a method makes of bad clients.

Only training trips are touched: validation and test stay sound, so errors are evaluated on the
truth.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from fedwatt.errors import DataError, SettingError, check, unknown
from fedwatt.randomness import generator
from fedwatt.telemetry.channels import CHANNELS
from fedwatt.telemetry.trip import FloatArray, Trip, Vehicle
from fedwatt.windows.client import DataSettings, split_of_trips

FAULTS = ("label noise", "sensor bias", "stuck channel")
NOISE_BLOCK_S = 60


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A kind of fault and its strength.

    label noise     energy of each minute off by `size` standard deviations of a minute's energy
    sensor bias     `channel` off by `size` of its own standard deviations, always
    stuck channel   `channel` keeps one value for the share `size` of every trip
    """

    kind: str
    size: float = 0.5
    channel: str = "speed_mps"

    def __post_init__(self) -> None:
        if self.kind not in FAULTS:
            raise SettingError(unknown("fault", self.kind, FAULTS))
        check(self, "size", math.isfinite(self.size) and self.size != 0, "a number other than 0")
        if self.kind == "stuck channel":
            check(self, "size", 0 < self.size <= 1, "a share in (0, 1]")
        if self.kind == "label noise":
            check(self, "size", self.size > 0, "positive")
        is_input = self.channel in CHANNELS and CHANNELS[self.channel].role == "input"
        check(self, "channel", is_input, "an input, such as speed_mps or ambient_c")


def corrupted(vehicle: Vehicle, fault: Fault, settings: DataSettings, seed: int = 0) -> Vehicle:
    """Return the vehicle with the fault in its training trips; `settings` say which these are."""
    split_of = split_of_trips(vehicle, settings)
    training = [trip for trip in vehicle.trips if split_of.get(trip.name) == "train"]
    channel = "energy_wh" if fault.kind == "label noise" else fault.channel
    missing = [trip.name for trip in training if channel not in trip.channels]
    if missing:
        raise DataError(
            f"Vehicle '{vehicle.name}', trip '{missing[0]}' has no channel '{channel}' to corrupt. "
            "Choose one that all its trips have."
        )
    spread = _spread([trip.channels[channel] for trip in training], fault)

    def corrupt(trip: Trip) -> Trip:
        if split_of.get(trip.name) != "train":
            return trip
        rng = generator(seed, "fault", fault.kind, vehicle.name, trip.name)
        changed = _changed(trip.channels[channel], fault, spread, rng)
        return replace(trip, channels={**trip.channels, channel: changed})

    facts = {
        **vehicle.facts,
        "fault": {"kind": fault.kind, "size": fault.size, "channel": channel},
        "corrupted_split": {
            "split": list(settings.split),
            "split_seed": settings.split_seed,
            "window": settings.window,
        },
    }
    return replace(vehicle, trips=tuple(corrupt(trip) for trip in vehicle.trips), facts=facts)


def corrupt_some(
    vehicles: Iterable[Vehicle], share: float, fault: Fault, settings: DataSettings, seed: int = 0
) -> Iterator[Vehicle]:
    """Yield the vehicles, each corrupted with probability `share` by a draw keyed by its name."""
    if not 0 <= share <= 1:
        raise SettingError(f"The share of corrupted vehicles must be in [0, 1], not {share}.")
    return (
        corrupted(vehicle, fault, settings, seed)
        if generator(seed, "spoiled", vehicle.name).random() < share
        else vehicle
        for vehicle in vehicles
    )


def _spread(series: list[FloatArray], fault: Fault) -> float:
    if fault.kind != "label noise":
        return float(np.concatenate(series).std())
    full_blocks = [values[: len(values) // NOISE_BLOCK_S * NOISE_BLOCK_S] for values in series]
    sums = np.concatenate([values.reshape(-1, NOISE_BLOCK_S).sum(axis=1) for values in full_blocks])
    return float(sums.std()) if len(sums) else 0.0


def _changed(values: FloatArray, fault: Fault, spread: float, rng: Generator) -> FloatArray:
    if fault.kind == "sensor bias":
        return values + fault.size * spread
    if fault.kind == "stuck channel":
        stuck = math.ceil(fault.size * len(values))
        start = int(rng.integers(len(values) - stuck + 1))
        changed = values.copy()
        changed[start : start + stuck] = values[start]
        return changed
    blocks = -(-len(values) // NOISE_BLOCK_S)
    error_wh = rng.normal(scale=fault.size * spread / NOISE_BLOCK_S, size=blocks)
    return values + np.repeat(error_wh, NOISE_BLOCK_S)[: len(values)]
