"""Where vehicles come from that are made, or read, only when they are asked for.

A maker knows how many vehicles there are and what each is called, and makes any of them, some at a
time. It is a small value: it travels to other processes and machines, which then make the same
vehicles.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote

import numpy as np

from fedwatt.data.store import read_vehicle, vehicle_folders
from fedwatt.data.synthetic import PREFIXES, synthetic_vehicle
from fedwatt.data.trip import Trip, Vehicle
from fedwatt.errors import SettingError
from fedwatt.physics.sketch import sketch
from fedwatt.randomness import key_of


class Maker(ABC):
    """Makes any vehicle of a fleet; names ascend in natural order with the places."""

    at_once: ClassVar[int] = 1
    """Vehicles that are best made together."""

    def all(self) -> Iterator[Vehicle]:
        """All vehicles, as few in memory at a time as are made together."""
        places = range(self.count)
        for first in places[:: self.at_once]:
            yield from self.vehicles(places[first : first + self.at_once])

    def place(self, name: str) -> int | None:
        """Where the vehicle with a name is; None: nowhere."""
        return next((k for k in range(self.count) if self.name(k) == name), None)

    @property
    @abstractmethod
    def count(self) -> int:
        """Vehicles of the fleet."""

    @abstractmethod
    def name(self, place: int) -> str:
        """What the vehicle at a place is called."""

    @abstractmethod
    def vehicles(self, places: Sequence[int]) -> list[Vehicle]:
        """The vehicles at these places, with their trips."""


@dataclass(frozen=True)
class TownVehicles(Maker):
    """Passenger cars of the embedded town, the same that `synthetic_vehicles` gives."""

    number: int
    seed: int
    trips: int

    def __post_init__(self) -> None:
        if self.number < 1 or self.trips < 1:
            raise SettingError(
                f"A synthetic fleet of {self.number} vehicles with {self.trips} trips each is "
                "empty. Ask for at least one of each."
            )

    @property
    def count(self) -> int:
        """As many as are asked for."""
        return self.number

    def name(self, place: int) -> str:
        """car-001, car-002, ..."""
        return f"{PREFIXES['passenger']}-{place + 1:03d}"

    def vehicles(self, places: Sequence[int]) -> list[Vehicle]:
        """One after the other."""
        return [
            synthetic_vehicle(self.name(place), seed=self.seed, trips=self.trips)
            for place in places
        ]


@dataclass(frozen=True)
class SketchedVehicles(TownVehicles):
    """Vehicles that drive in outline only (`physics.sketch`), which are much quicker to make."""

    at_once: ClassVar[int] = 24  # as long for twenty as for five, and they fit into a cache

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


@dataclass(frozen=True)
class StoredVehicles(Maker):
    """The first vehicles of a fleet folder, or all (0); opening it reads no vehicle."""

    folder: str
    number: int = 0

    @cached_property
    def _folders(self) -> list[Path]:
        return vehicle_folders(Path(self.folder))

    @property
    def stored(self) -> int:
        """Vehicles in the folder."""
        return len(self._folders)

    @property
    def count(self) -> int:
        """As many as are asked for and there."""
        return min(self.number or self.stored, self.stored)

    def name(self, place: int) -> str:
        """What the vehicle's folder is named after."""
        return unquote(self._folders[place].name)

    def vehicles(self, places: Sequence[int]) -> list[Vehicle]:
        """Read from their folders."""
        return [read_vehicle(self._folders[place]) for place in places]
