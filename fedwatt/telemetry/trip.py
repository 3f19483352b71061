"""Telemetry of a vehicle: trips as recorded, trips sampled once a second, and the vehicle.

Names, units and signs of channels are those of `channels.CHANNELS`.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import DataError, unknown
from fedwatt.telemetry.channels import CHANNELS, STORED

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

INTERVAL_S = 1.0
KINDS = ("passenger", "truck", "bus")
LABELS = ("measured", "simulated")
UNLABELLED = "none"


@dataclass(frozen=True, eq=False)
class RawTrip:
    """One trip as recorded: `time_s` [rows], each channel [rows].

    NaN means "no reading in this row". Rows are events: their spacing is whatever it was.
    `clock_s` is the vehicle's clock where `time_s` is 0; NaN if its trips share no clock.
    """

    name: str
    time_s: FloatArray
    channels: Mapping[str, FloatArray]
    clock_s: float = math.nan

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.time_s)

    def take(self, rows: IntArray | BoolArray | slice) -> "RawTrip":
        """Return the trip with only these rows, in this order."""
        chosen = {name: values[rows] for name, values in self.channels.items()}
        return replace(self, time_s=self.time_s[rows], channels=chosen)

    def cut(self, before: IntArray) -> list["RawTrip"]:
        """Return the parts between these rows, empty ones left out."""
        borders = [0, *before.tolist(), self.rows]
        return [self.take(slice(a, b)) for a, b in pairwise(borders) if a < b]

    def with_channels(self, changed: Mapping[str, FloatArray]) -> "RawTrip":
        """Return the trip with some channels replaced."""
        return replace(self, channels={**self.channels, **changed})

    def has(self, channel: str) -> bool:
        """Return whether the channel holds at least one reading."""
        values = self.channels.get(channel)
        return values is not None and bool(np.isfinite(values).any())


@dataclass(frozen=True, eq=False)
class Trip:
    """One drive without gaps: float64 [seconds] for each channel, one sample per second.

    `energy_wh[i]` is the energy that left the pack during second i (+ = discharge).
    `recording` names the first part of the recorded trip that this one was cut from at a gap; a
    trip that was not cut is its own. `start_time_s` is when it began, in seconds on a clock that
    all trips of its vehicle share (since 1970 where the source has dates); NaN where unknown.
    """

    name: str
    channels: Mapping[str, FloatArray]
    recording: str = ""
    start_time_s: float = math.nan

    def __post_init__(self) -> None:
        object.__setattr__(self, "recording", self.recording or self.name)
        arrays = {name: np.asarray(values, float) for name, values in self.channels.items()}
        object.__setattr__(self, "channels", arrays)

    @property
    def seconds(self) -> int:
        """Number of samples."""
        return next((len(values) for values in self.channels.values()), 0)

    @property
    def metres(self) -> float:
        """Distance driven, from speed."""
        return float(self.channels["speed_mps"].sum())


@dataclass(frozen=True, eq=False)
class Vehicle:
    """All trips of one vehicle, and facts about it.

    `labels` says whether its energy, or the state of charge of a vehicle that reports no more, was
    "measured" or "simulated"; a vehicle of which some trip has neither has "none": it can be
    electrified, but not trained on. `facts` are JSON-able remarks,
    such as mass_kg, model, powertrain, source, or the account of rows dropped at import.
    """

    name: str
    trips: tuple[Trip, ...]
    kind: str = "passenger"
    labels: str = "simulated"
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "trips", tuple(self.trips))
        if not self.name:
            raise DataError("A vehicle has an empty name. Give every vehicle another name.")
        if self.kind not in KINDS:
            raise DataError(f"Vehicle '{self.name}': {unknown('kind', self.kind, KINDS)}")
        if self.labels not in (*LABELS, UNLABELLED):
            raise DataError(f"Vehicle '{self.name}': {unknown('labels', self.labels, LABELS)}")
        for name, times in Counter(trip.name for trip in self.trips).items():
            if times > 1:
                raise DataError(
                    f"Vehicle '{self.name}' has {times} trips named '{name}'. "
                    "Trip names must be unique within a vehicle: rename or merge them."
                )
        for trip in self.trips:
            _refuse_misshapen(self, trip)

    def refuse_unless_trainable(self) -> None:
        """Refuse a vehicle that has trips without energy."""
        if self.labels == UNLABELLED:
            raise DataError(
                f"Vehicle '{self.name}' has trips without pack signals, so there is no energy to "
                "learn. Electrify its driving, or import only trips with voltage and current."
            )


def _refuse_misshapen(vehicle: Vehicle, trip: Trip) -> None:
    where = f"Vehicle '{vehicle.name}', trip '{trip.name}'"
    for name, values in trip.channels.items():
        if name not in STORED:
            raise DataError(f"{where}: {unknown('channel', name, STORED)}")
        if values.ndim != 1:
            raise DataError(
                f"{where}: channel '{name}' has shape {values.shape}; it must be [seconds]."
            )
    if vehicle.labels != UNLABELLED and not {"energy_wh", "soc"} & trip.channels.keys():
        raise DataError(
            f"{where} has neither 'energy_wh' ({CHANNELS['energy_wh'].meaning}) nor 'soc' "
            f"({CHANNELS['soc'].meaning}), so there is nothing to learn from it. "
            "Map one of them at import, or leave the trip out."
        )
    for name, channel in CHANNELS.items():
        if channel.required and name not in trip.channels:
            raise DataError(
                f"{where} has no channel '{name}' ({channel.meaning}). "
                "Every trip needs it: map it at import, or leave the trip out."
            )
    first, *other_channels = trip.channels
    for name in other_channels:
        if len(trip.channels[name]) != len(trip.channels[first]):
            raise DataError(
                f"{where}: channel '{name}' has {len(trip.channels[name])} samples but '{first}' "
                f"has {len(trip.channels[first])}. Resample all channels to one clock of 1 s."
            )
