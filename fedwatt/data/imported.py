"""Cleaned telemetry as vehicles of a fleet."""

from collections.abc import Iterable, Iterator

from fedwatt.data.cleaning.records import CleanVehicle
from fedwatt.data.trip import CHANNELS, INTERVAL_S, Trip, Vehicle
from fedwatt.errors import DataError


def imported_vehicle(clean: CleanVehicle) -> Vehicle:
    """The cleaned vehicle with the channels that a fleet knows; others stay behind."""
    if clean.labels == "none":
        raise DataError(
            f"Vehicle '{clean.name}' has trips without pack signals, so there is no energy to "
            "learn. Electrify its driving, or import only trips with voltage and current."
        )
    for trip in clean.trips:
        if trip.interval_s != INTERVAL_S:
            raise DataError(
                f"Vehicle '{clean.name}', trip '{trip.name}' has a sample every {trip.interval_s} "
                f"s; a fleet has one every {INTERVAL_S} s. Import it with that interval."
            )
    trips = tuple(
        Trip(
            trip.name,
            {c: values for c, values in trip.channels.items() if c in CHANNELS},
            trip.recording,
        )
        for trip in clean.trips
    )
    return Vehicle(clean.name, trips, clean.kind, clean.labels, clean.facts)


def imported_vehicles(clean: Iterable[CleanVehicle]) -> Iterator[Vehicle]:
    """Each cleaned vehicle as a vehicle of a fleet, one at a time."""
    return (imported_vehicle(vehicle) for vehicle in clean)
