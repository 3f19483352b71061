"""The embedded fleet: synthetic vehicles, ready to use without any data at hand."""

from collections.abc import Iterator

from fedwatt.errors import SettingError
from fedwatt.fleet.client import DataSettings, Fleet, build_fleet
from fedwatt.fleet.trip import Trip, Vehicle
from fedwatt.physics.synthetic import synthetic_vehicle


def synthetic_vehicles(vehicles: int, seed: int = 0, *, trips: int = 40) -> Iterator[Vehicle]:
    """Vehicles "car-001", "car-002", ... of the town of `seed`, one at a time.

    A vehicle is the same however many are asked for.
    """
    if vehicles < 1 or trips < 1:
        raise SettingError(
            f"A synthetic fleet of {vehicles} vehicles with {trips} trips each is empty. "
            "Ask for at least one of each."
        )
    return (_vehicle(f"car-{number:03d}", seed, trips) for number in range(1, vehicles + 1))


def synthetic_fleet(
    vehicles: int = 20,
    seed: int = 0,
    settings: DataSettings | None = None,
    *,
    trips: int = 40,
) -> Fleet:
    """Clients of `vehicles` synthetic vehicles; default settings if none are given."""
    source = f"synthetic, {vehicles} vehicles, seed {seed}"
    return build_fleet(
        synthetic_vehicles(vehicles, seed, trips=trips), settings or DataSettings(), source
    )


def _vehicle(name: str, seed: int, trips: int) -> Vehicle:
    made = synthetic_vehicle(name, seed=seed, trips=trips)
    return Vehicle(
        name=made.name,
        trips=tuple(Trip(trip, channels) for trip, channels in made.trips),
        kind=made.kind,
        labels="simulated",
        facts=made.facts,
    )
