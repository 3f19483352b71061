"""Vehicles that drive in outline only (`physics.sketch`), which are much quicker to make."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedwatt.errors import SettingError
from fedwatt.randomness import key_of
from fedwatt.synthetic.fleet import TownVehicles
from fedwatt.synthetic.sketch import sketch
from fedwatt.telemetry.trip import Trip, Vehicle


@dataclass(frozen=True)
class SketchedVehicles(TownVehicles):
    """The first `number` of them."""

    data: ClassVar[str] = "sketch"
    made: ClassVar[str] = "sketched"
    at_once: ClassVar[int] = 24  # as long for twenty as for five, and they fit into a cache

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind != "passenger":
            raise SettingError(f"Only passenger cars are sketched; a {self.kind} is 'synthetic'.")

    def vehicles(self, places: Sequence[int]) -> list[Vehicle]:
        """All of them at once."""
        names = [self.name(place) for place in places]
        keys = [key_of(self.seed, "sketch", name) % 2**64 for name in names]
        traces = sketch(np.array(keys, dtype=np.uint64), self.trips)
        channels = ("speed_mps", "ambient_c", "ac_w", "heater_w", "energy_wh")
        facts = {"source": f"sketched, seed {self.seed}", "powertrain": "ev"}
        made = []
        for row, name in enumerate(names):
            trips = tuple(
                Trip(
                    f"trip-{n + 1:03d}",
                    {c: getattr(traces, c)[: traces.seconds[row, n], row, n] for c in channels},
                )
                for n in range(self.trips)
            )
            made.append(Vehicle(name, trips, "passenger", "simulated", facts))
        return made
