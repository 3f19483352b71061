"""The plain structures telemetry hands on: trips as read, trips as cleaned, vehicles.

Channel names, units and signs are those of `schema.CHANNELS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RawTrip:
    """One trip as recorded, in schema units: `time_s` [rows], each channel [rows].

    NaN means "no reading in this row". Rows are events: their spacing is whatever it was.
    """

    name: str
    time_s: FloatArray
    channels: Mapping[str, FloatArray]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.time_s)

    def take(self, rows: IntArray | BoolArray | slice) -> "RawTrip":
        """The trip with only these rows, in this order."""
        chosen = {name: values[rows] for name, values in self.channels.items()}
        return replace(self, time_s=self.time_s[rows], channels=chosen)

    def with_channels(self, changed: Mapping[str, FloatArray]) -> "RawTrip":
        """The trip with some channels replaced."""
        return replace(self, channels={**self.channels, **changed})

    def has(self, channel: str) -> bool:
        """Whether the channel holds at least one reading."""
        values = self.channels.get(channel)
        return values is not None and bool(np.isfinite(values).any())


@dataclass(frozen=True, eq=False)
class CleanTrip:
    """One drive without gaps: each channel float64 [seconds], one sample every interval.

    `energy_wh[r]` is the energy that left the pack during the interval that ends at sample r.
    `recording` names the first usable part of the recorded trip that this one is a part of.
    """

    name: str
    channels: Mapping[str, FloatArray]
    interval_s: float = 1.0
    recording: str = ""

    @property
    def samples(self) -> int:
        """Number of samples: seconds, at the default interval."""
        return len(self.channels["speed_mps"])

    @property
    def metres(self) -> float:
        """Distance driven, from speed."""
        return float(self.channels["speed_mps"].sum()) * self.interval_s


@dataclass(frozen=True, eq=False)
class CleanVehicle:
    """The cleaned trips of one vehicle; `facts` is JSON-able and holds the account of its cleaning.

    `labels` is "measured" or "simulated", or "none" for speed traces without pack signals.
    """

    name: str
    trips: tuple[CleanTrip, ...]
    kind: str = "passenger"
    labels: str = "measured"
    facts: Mapping[str, Any] = field(default_factory=dict)
