"""The embedded fleet: synthetic vehicles, ready to use without any data at hand."""

from collections.abc import Iterator

from fedwatt.data.client import DataSettings, Fleet, build_fleet
from fedwatt.data.trip import Trip, Vehicle
from fedwatt.errors import SettingError, unknown
from fedwatt.physics.synthetic import synthetic_vehicle

PREFIXES = {"passenger": "car", "truck": "truck", "bus": "bus"}


def synthetic_vehicles(
    vehicles: int, seed: int = 0, *, trips: int = 40, kind: str = "passenger"
) -> Iterator[Vehicle]:
    """Vehicles "car-001", "car-002", ... (or "truck-", "bus-") of the town of `seed`, one by one.

    A vehicle is the same however many are asked for.
    """
    if kind not in PREFIXES:
        raise SettingError(unknown("kind of vehicle", kind, PREFIXES))
    if vehicles < 1 or trips < 1:
        raise SettingError(
            f"A synthetic fleet of {vehicles} vehicles with {trips} trips each is empty. "
            "Ask for at least one of each."
        )
    return (
        _vehicle(f"{PREFIXES[kind]}-{number:03d}", seed, trips, kind)
        for number in range(1, vehicles + 1)
    )


def synthetic_fleet(
    vehicles: int = 20,
    seed: int = 0,
    settings: DataSettings | None = None,
    *,
    trips: int = 40,
    kind: str = "passenger",
) -> Fleet:
    """Clients of `vehicles` synthetic vehicles; default settings if none are given."""
    what = "vehicles" if kind == "passenger" else f"{kind} vehicles"
    source = f"synthetic, {vehicles} {what}, seed {seed}"
    made = synthetic_vehicles(vehicles, seed, trips=trips, kind=kind)
    return build_fleet(made, settings or DataSettings(), source)


def _vehicle(name: str, seed: int, trips: int, kind: str) -> Vehicle:
    made = synthetic_vehicle(name, seed=seed, trips=trips, kind=kind)
    return Vehicle(
        name=made.name,
        trips=tuple(Trip(trip, channels) for trip, channels in made.trips),
        kind=made.kind,
        labels="simulated",
        facts=made.facts,
    )
