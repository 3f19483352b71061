"""The fleet that a configuration asks for, with the elevation map that its vehicles learn.

RUN/elevation_map.parquet    the published map, learned before the first round

`fedwatt.elevation` says how a map is learned.
"""

import logging
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path

from fedwatt.elevation.climb import with_elevation
from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.learn import (
    Learned,
    learn_alone,
    learn_maps,
    with_climb_channels,
)
from fedwatt.elevation.store import read_map_file
from fedwatt.elevation.vehicle_map import vehicle_maps
from fedwatt.errors import DataError, SettingError, counted
from fedwatt.runs.config import RunConfig, Source
from fedwatt.runs.observers import SILENT, Observer
from fedwatt.synthetic.fleet import TownVehicles
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.store import StoredVehicles
from fedwatt.windows import Client, DataSettings, Fleet, build_client, build_fleet
from fedwatt.windows.client import lacks_target, prepared
from fedwatt.windows.features import feature_names, needs_climb
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
    """Return synthetic vehicles or a stored fleet, with climb where a feature needs it.

    Climb is read from the maps `learned`, if given, and otherwise as `elevation` says.
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
    """Warn of a fleet of one vehicle, once even if a run opens the fleet several times."""
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
    large = vehicles >= ON_DEMAND_FROM and source.data == "synthetic"
    return source.made == "on-demand" or (source.made == "auto" and large)


def vehicle_maker(source: Source) -> Maker:
    """Return the maker of a source's vehicles."""
    count = source.vehicles or SYNTHETIC_VEHICLES
    seed = source.seed
    trips = source.trips
    if source.data == "synthetic":
        return TownVehicles(count, seed, trips)
    maker = StoredVehicles(str(fleet_folder(source)), source.vehicles)
    if source.vehicles > maker.count:
        raise SettingError(
            f"The fleet {source.data} has {counted(maker.count, 'vehicle')}, not the "
            f"{source.vehicles} asked for. Ask for fewer, or for 0: all of them."
        )
    return maker


def fleet_folder(source: Source) -> Path:
    """Return the folder of a stored fleet; raise if it is not there."""
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


def learns_elevation(config: RunConfig) -> bool:
    """Return whether a feature needs climb and the run's vehicles learn the map it is read from."""
    return needs_climb(feature_names(config.data.features)) and config.elevation.learns


def shares_elevation(config: RunConfig) -> bool:
    """Return whether a deployed fleet learns an elevation map: for features, or for routes."""
    return learns_elevation(config) or config.deploy.routes


def learned_for(config: RunConfig) -> Learned | None:
    """Return the maps that a run learns; None where it needs none or has them from elsewhere."""
    return learned_elevation(config) if learns_elevation(config) else None


def learned_elevation(config: RunConfig) -> Learned:
    """Return the maps that the vehicles of a run learn, whether or not its features need climb.

    Vehicles that are held out contribute nothing. With `secure.enabled` the map is the one that the
    same vehicles would learn on a deployed fleet, by secure aggregation.
    """
    vehicles = partial(source_vehicles, config.fleet, config.data)
    return learn_maps(vehicles, config.data, config.elevation, secure=config.secure.enabled)


def learned_alone(config: RunConfig, learners: frozenset[str] | None = None) -> Learned:
    """Return the maps of local-only vehicles, each learned from its own training trips alone.

    Vehicles outside `learners` (None: all learn) have an empty map.
    """
    vehicles = source_vehicles(config.fleet, config.data)
    return learn_alone(vehicles, config.elevation, config.data, learners=learners)


def unsurveyed_clients(config: RunConfig, learned: Learned) -> Iterator[Client]:
    """Yield the contributors to a map, each with the climb that it would read without trips."""
    maps = vehicle_maps(list(learned.contributors), {}, learned.shared, config.elevation)
    for vehicle in source_vehicles(config.fleet, config.data):
        if vehicle.name in maps and not lacks_target(vehicle, config.data):
            yield build_client(with_elevation(vehicle, maps[vehicle.name]), config.data)


def run_fleet(config: RunConfig) -> Fleet:
    """Return the fleet of a run, with climb where its features need it."""
    return open_fleet(config, learned_for(config))


def vehicle_map(
    config: RunConfig, run: Path, vehicle: str, file: Path | None = None
) -> ElevationMap | None:
    """Return the elevation map of a vehicle's model file; None where the model needs none.

    It is the map of `file`, or else the run's. A map that the run learned is learned again from the
    same training trips: the shared nodes and the vehicle's private ones, which no run folder holds.
    The map of a deployed fleet is on the vehicle's own disk.
    """
    climbs = needs_climb(feature_names(config.data.features))
    source = config.elevation.source
    if not climbs or source == "measured":
        if file is not None:
            raise SettingError(
                "The run needs no elevation map: "
                + ("its climb is measured." if climbs else "climb is not among its features.")
                + " Leave --elevation-map out."
            )
        return None
    if file is not None or not config.elevation.learns:
        return read_map_file(file or Path(source))
    if (run / "deployment.json").exists():
        raise DataError(
            f"The elevation map of {run} was learned on a deployed fleet, and that of vehicle "
            f"'{vehicle}' is on its own disk. Give its --state folder here as well, or the file of "
            "a map with --elevation-map."
        )
    learned = learned_for(config)
    if learned is None or vehicle not in learned.maps:
        raise DataError(
            f"Vehicle '{vehicle}' is not in the run's fleet '{config.fleet.data}', so the run has "
            "no elevation map for it. Give one with --elevation-map ('fedwatt elevation learn' "
            "makes it)."
        )
    return learned.maps[vehicle]
