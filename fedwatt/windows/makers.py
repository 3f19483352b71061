"""Sources of vehicles that are made, or read, only when they are needed.

A maker knows how many vehicles there are and what each is called, and makes any of them, some at a
time. It is a small value: it travels to other processes and machines, which then make the same
vehicles.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from fedwatt.telemetry.trip import Vehicle
from fedwatt.windows.client import DataSettings, Fleet, build_fleet


class Maker(ABC):
    """Makes any vehicle of a fleet; names ascend in natural order with the places."""

    at_once: ClassVar[int] = 1
    """Vehicles that are best made together."""

    def all(self) -> Iterator[Vehicle]:
        """All vehicles, as few in memory at a time as are made together."""
        places = range(self.count)
        for first in places[:: self.at_once]:
            yield from self.vehicles(places[first : first + self.at_once])

    def fleet(self, settings: DataSettings | None = None) -> Fleet:
        """Clients of all vehicles, made ahead; default settings if none are given."""
        fleet = build_fleet(self.all(), settings or DataSettings(), self.source)
        return replace(fleet, origin=self.origin)

    def place(self, name: str) -> int | None:
        """Return the place of the vehicle with this name, or None."""
        return next((k for k in range(self.count) if self.name(k) == name), None)

    @property
    @abstractmethod
    def source(self) -> str:
        """Description of the vehicles' origin, for people."""

    @property
    @abstractmethod
    def origin(self) -> Mapping[str, str | int]:
        """The section [fleet] of a configuration that makes them again."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Vehicles of the fleet."""

    @abstractmethod
    def name(self, place: int) -> str:
        """Return the name of the vehicle at a place."""

    @abstractmethod
    def vehicles(self, places: Sequence[int]) -> list[Vehicle]:
        """Return the vehicles at these places, with their trips."""
