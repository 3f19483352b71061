"""A vehicle's telemetry: trips of channels sampled once a second, in SI units.

Every channel has a role. *Inputs* are what a model may see. *Positions* are kept on board, for what
is computed there, and are never a feature by themselves. *Labels* come from the pack (paper
`eq:pack_power`, `eq:energy_increment_sf`) and are never a feature.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import DataError, unknown

FloatArray = NDArray[np.float64]
Role = Literal["input", "position", "label"]

INTERVAL_S = 1.0
KINDS = ("passenger", "truck", "bus")
LABELS = ("measured", "simulated")


@dataclass(frozen=True)
class Channel:
    """What a channel holds."""

    unit: str
    meaning: str
    role: Role
    required: bool = False


CHANNELS: dict[str, Channel] = {
    "speed_mps": Channel("m/s", "vehicle speed", "input", required=True),
    "ambient_c": Channel("°C", "outside air temperature", "input"),
    "ac_w": Channel("W", "electric power of the air conditioning", "input"),
    "heater_w": Channel("W", "electric power of the cabin heater", "input"),
    "grade": Channel("1", "rise over run of the road, + uphill", "input"),
    "elevation_m": Channel("m", "height above sea level", "input"),
    "speed_limit_mps": Channel("m/s", "speed limit of the road", "input"),
    "intersection": Channel("0/1", "at an intersection", "input"),
    "bus_stop": Channel("0/1", "at a bus stop", "input"),
    "focus_point": Channel("0/1", "at a signal, crossing, stop sign or the like", "input"),
    "climb_m": Channel("m", "metres up in this second, from an elevation field", "input"),
    "descent_m": Channel("m", "metres down in this second, from an elevation field", "input"),
    "climb_known": Channel("0/1", "climb was read, not taken as level", "input"),
    "latitude_deg": Channel("°", "latitude, WGS 84", "position"),
    "longitude_deg": Channel("°", "longitude, WGS 84", "position"),
    "energy_wh": Channel("Wh", "energy leaving the pack, + discharge", "label", required=True),
    "voltage_v": Channel("V", "pack voltage", "label"),
    "current_a": Channel("A", "pack current, + discharge", "label"),
    "soc": Channel("1", "state of charge, 0 to 1", "label"),
}


@dataclass(frozen=True, eq=False)
class Trip:
    """One drive. `channels` maps names of `CHANNELS` to float64 [seconds], one sample a second.

    `energy_wh[i]` is the energy that left the pack during sample interval i (+ = discharge).
    `recording` names the first part of the recorded trip that this one was cut from at a gap; a
    trip that was not cut is its own.
    """

    name: str
    channels: Mapping[str, FloatArray]
    recording: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "recording", self.recording or self.name)
        arrays = {name: np.asarray(values, float) for name, values in self.channels.items()}
        object.__setattr__(self, "channels", arrays)

    @property
    def seconds(self) -> int:
        """Number of samples."""
        return next((len(values) for values in self.channels.values()), 0)


@dataclass(frozen=True, eq=False)
class Vehicle:
    """All trips of one vehicle, and what is known about it.

    `labels` says whether its energy was "measured" or "simulated". `facts` are JSON-able remarks,
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
            raise DataError("A vehicle has an empty name. Give every vehicle a name of its own.")
        if self.kind not in KINDS:
            raise DataError(f"Vehicle '{self.name}': {unknown('kind', self.kind, KINDS)}")
        if self.labels not in LABELS:
            raise DataError(f"Vehicle '{self.name}': {unknown('labels', self.labels, LABELS)}")
        for name, times in Counter(trip.name for trip in self.trips).items():
            if times > 1:
                raise DataError(
                    f"Vehicle '{self.name}' has {times} trips named '{name}'. "
                    "Trip names must be unique within a vehicle: rename or merge them."
                )
        for trip in self.trips:
            _refuse_misshapen(self.name, trip)


def _refuse_misshapen(vehicle: str, trip: Trip) -> None:
    where = f"Vehicle '{vehicle}', trip '{trip.name}'"
    for name, values in trip.channels.items():
        if name not in CHANNELS:
            raise DataError(f"{where}: {unknown('channel', name, CHANNELS)}")
        if values.ndim != 1:
            raise DataError(
                f"{where}: channel '{name}' has shape {values.shape}; it must be [seconds]."
            )
    for name, channel in CHANNELS.items():
        if channel.required and name not in trip.channels:
            raise DataError(
                f"{where} has no channel '{name}' ({channel.meaning}). "
                "Every trip needs it: map it at import, or leave the trip out."
            )
    first, *others = trip.channels
    for name in others:
        if len(trip.channels[name]) != len(trip.channels[first]):
            raise DataError(
                f"{where}: channel '{name}' has {len(trip.channels[name])} samples but '{first}' "
                f"has {len(trip.channels[first])}. Resample all channels to one clock of 1 s."
            )
