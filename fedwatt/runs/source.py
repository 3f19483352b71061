"""The fleet that a configuration asks for."""

import logging
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path

from fedwatt.elevation.learn import Learned, with_climb_channels
from fedwatt.errors import DataError, SettingError, counted
from fedwatt.runs.config import RunConfig, Source
from fedwatt.runs.observers import SILENT, Observer
from fedwatt.synthetic.fleet import TownVehicles
from fedwatt.synthetic.sketch import SketchedVehicles
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.store import StoredVehicles
from fedwatt.windows import DataSettings, Fleet, build_fleet
from fedwatt.windows.client import prepared
from fedwatt.windows.lazy import Maker, refuse_climb

log = logging.getLogger(__name__)

SYNTHETIC_VEHICLES = 20
ON_DEMAND_FROM = 20_000
"""Vehicles from which on a fleet is made on demand, unless `fleet.made` says otherwise."""
OWN = "own"
"""In the place of a folder: a fleet that was made in Python and is not stored."""


def open_fleet(
    config: RunConfig, learned: Learned | None = None, observer: Observer = SILENT
) -> Fleet:
    """Synthetic vehicles, or those of a stored fleet; with hills where a feature needs them.

    Hills are those of `learned`, if given, and otherwise as `elevation` says.
    """
    source = config.fleet
    maker = vehicle_maker(source)
    count = maker.count
    if made_on_demand(source, count):
        return maker.lazy_fleet(config.data)
    if isinstance(maker, StoredVehicles) and maker.stored == 1:
        _warn_of_one_vehicle(source.data)
    make_vehicles = partial(source_vehicles, source, config.data)
    vehicles = with_climb_channels(make_vehicles, config.data, config.elevation, learned)
    return build_fleet(
        vehicles,
        config.data,
        maker.source,
        on_vehicle=lambda built: observer.on_vehicle(built, count),
    )


@cache
def _warn_of_one_vehicle(fleet: str) -> None:
    """Once, although a run with hills opens its fleet several times."""
    log.warning(
        "The fleet %s has one vehicle, so there is nothing to federate: every method "
        "trains that vehicle alone. If its recording holds several, import it again with "
        "the column that names them; 'fedwatt data merge' adds other fleets.",
        fleet,
    )


def source_vehicles(source: Source, data: DataSettings | None = None) -> Iterable[Vehicle]:
    """Yield the vehicles themselves, one at a time: as recorded, or aligned where `data` asks for
    it.
    """
    maker = vehicle_maker(source)
    vehicles = maker.all()
    if made_on_demand(source, maker.count) and data is not None:
        refuse_climb(data, maker.count)
    return vehicles if data is None else (prepared(vehicle, data) for vehicle in vehicles)


def made_on_demand(source: Source, vehicles: int) -> bool:
    """Return whether a source of so many vehicles makes each only when it takes part.

    By itself only where vehicles are made: of a stored fleet those without the label are left out,
    which takes reading them all.
    """
    large = vehicles >= ON_DEMAND_FROM and source.data in ("synthetic", "sketch")
    return source.made == "on-demand" or (source.made == "auto" and large)


def vehicle_maker(source: Source) -> Maker:
    """Return the maker of a source's vehicles."""
    count = source.vehicles or SYNTHETIC_VEHICLES
    seed = source.seed
    trips = source.trips
    if source.data == "synthetic":
        return TownVehicles(count, seed, trips)
    if source.data == "sketch":
        return SketchedVehicles(count, seed, trips)
    maker = StoredVehicles(str(fleet_folder(source)), source.vehicles)
    if source.vehicles > maker.count:
        raise SettingError(
            f"The fleet {source.data} has {counted(maker.count, 'vehicle')}, not the "
            f"{source.vehicles} asked for. Ask for fewer, or for 0: all of them."
        )
    return maker


def fleet_folder(source: Source) -> Path:
    """Return the folder of a stored fleet; raise if it is not there, and say where that is."""
    folder = Path(source.data)
    if folder.exists():
        return folder
    if source.data == OWN:
        raise DataError(
            "The fleet of this run was made in Python and is not stored. Hand it over with "
            "fedwatt.load(RUN, fleet=...), or store it before training: "
            "fleet_from_frame(..., out=FOLDER), or write_fleet and load_fleet."
        )
    hint = ""
    if not folder.is_absolute():
        hint = f" '{folder}' is a relative path: it starts from the folder fedwatt is started in."
    raise DataError(
        f"{folder.absolute()} does not exist. 'fedwatt data generate' and 'fedwatt data import' "
        f"make one.{hint}"
    )
