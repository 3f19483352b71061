"""Source of a fleet's climb: measured elevation, a map file, or learning.

"auto" is learning in which a vehicle's measured elevation counts wherever it has it.

`ElevationSettings.source` says which. Telemetry is gone through more than once rather than kept, so
vehicles come as a function that gives them anew.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from fedwatt.elevation.climb import with_elevation, with_measured_elevation
from fedwatt.elevation.elevation_map import Field
from fedwatt.elevation.learn import Learned, Share, add_elevation, learn, learn_shared
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.store import (
    Provenance,
    read_field,
    read_provenance,
    warn_unknown,
    write_field,
)
from fedwatt.errors import DataError
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.store import read_fleet
from fedwatt.windows import DataSettings
from fedwatt.windows.features import feature_names, needs_climb
from fedwatt.windows.splits import held_out_vehicles

log = logging.getLogger("fedwatt.elevation")

Vehicles = Callable[[], Iterable[Vehicle]]
"""Gives the vehicles of a fleet, one at a time, each time it is called."""


def learns_field(settings: ElevationSettings, data: DataSettings) -> bool:
    """Return whether a feature needs climb, and the vehicles learn the field that it is read
    from.
    """
    return needs_climb(feature_names(data.features)) and settings.learns


def with_climb_channels(
    vehicles: Vehicles,
    data: DataSettings,
    settings: ElevationSettings,
    learned: Learned | None = None,
) -> Iterable[Vehicle]:
    """Yield the vehicles with channels of climb where a feature needs them, else as they are.

    `learned` are fields that the vehicles have learned already.
    """
    if not needs_climb(feature_names(data.features)):
        return vehicles()
    if learned is None and settings.source == "measured":
        return _with_elevation(vehicles(), settings)
    if learned is None and not settings.learns:
        return _with_field_of(Path(settings.source), vehicles, data)
    return add_elevation(vehicles(), learned or learn_fields(vehicles, data, settings))


def _with_elevation(vehicles: Iterable[Vehicle], settings: ElevationSettings) -> Iterator[Vehicle]:
    """Yield the vehicles with climb by their elevation channels; those without any are told
    apart.
    """
    without = []
    count = 0
    for vehicle in vehicles:
        count += 1
        if not any("elevation_m" in trip.channels for trip in vehicle.trips):
            without.append(vehicle.name)
        yield with_measured_elevation(vehicle)
    if len(without) == count:
        raise DataError(
            "No vehicle has a channel 'elevation_m', so no climb is measured. Import recordings "
            "with elevation (or --dem), or let the fleet learn a map: elevation.source = 'auto'."
        )
    if without:
        log.warning(
            "%d of %d vehicles have no measured elevation, so their climb is unknown: %s. With "
            "elevation.source = 'auto' they would read the map that the fleet learns.",
            len(without),
            count,
            ", ".join(without[:5]),
        )


def learn_fields(
    vehicles: Vehicles,
    data: DataSettings,
    settings: ElevationSettings,
    *,
    share: Share | None = None,
) -> Learned:
    """Return the fields that a fleet learns; vehicles that are held out contribute nothing.

    `share` as in `learn`.
    """
    if not data.held_out:
        return learn(vehicles(), settings, data, share=share)
    names = [vehicle.name for vehicle in vehicles()]
    never = held_out_vehicles(names, data.held_out, data.split_seed)
    contributors = frozenset(names) - never
    return learn(vehicles(), settings, data, contributors=contributors, share=share)


def publish_field(
    fleet: Path, out: Path, settings: ElevationSettings, data: DataSettings
) -> tuple[Field, int]:
    """Return the field that a stored fleet publishes, now in the file `out`, and how many nodes it
    drove.

    Vehicles that a run under `data` holds out contribute nothing, and the file says who did.
    """
    never = _held_out(lambda: read_fleet(fleet), data)
    contributors: list[str] = []

    def contributing() -> Iterator[Vehicle]:
        for vehicle in read_fleet(fleet):
            if vehicle.name not in never:
                contributors.append(vehicle.name)
                yield vehicle

    field, driven = learn_shared(contributing(), settings, data)
    write_field(out, field, driven=driven, provenance=Provenance.by(contributors, data))
    return field, driven


def _held_out(vehicles: Vehicles, data: DataSettings) -> frozenset[str]:
    names = [vehicle.name for vehicle in vehicles()] if data.held_out else []
    return frozenset(held_out_vehicles(names, data.held_out, data.split_seed))


def _with_field_of(file: Path, vehicles: Vehicles, data: DataSettings) -> Iterable[Vehicle]:
    """Yield the vehicles with climb from the field of a file, unless it knows their test trips."""
    field = read_field(file)
    provenance = read_provenance(file)
    never = _held_out(vehicles, data)
    if provenance is None:
        warn_unknown(file)
    for vehicle in vehicles():
        if provenance is not None:
            provenance.refuse(file, vehicle.name, data, held_out=vehicle.name in never)
        yield with_elevation(vehicle, field)
