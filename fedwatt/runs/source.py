"""The fleet that a configuration asks for."""

from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from fedwatt.data import DataSettings, Fleet, Vehicle, build_fleet, synthetic_vehicles
from fedwatt.data.features import feature_names, needs_climb
from fedwatt.data.split import held_out_vehicles
from fedwatt.data.store import fleet_source, read_fleet, vehicle_folders
from fedwatt.errors import DataError, SettingError, counted
from fedwatt.runs.config import Source
from fedwatt.terrain import Learned, TerrainSettings, give_terrain, learn, with_terrain
from fedwatt.terrain.climb import with_measured_terrain
from fedwatt.terrain.learn import Share
from fedwatt.terrain.store import read_field, read_taught
from fedwatt.terrain.taught import warn_unknown

SYNTHETIC_VEHICLES = 20


OnVehicle = Callable[[int, int], None]
"""Called with (vehicles built so far, vehicles in all)."""


def open_fleet(
    source: Source,
    data: DataSettings,
    terrain: TerrainSettings | None = None,
    *,
    on_vehicle: OnVehicle | None = None,
    learned: Learned | None = None,
) -> Fleet:
    """Synthetic vehicles, or those of a stored fleet; with hills where a feature needs them.

    Hills are those of `learned`, if given, and otherwise as `terrain` says.
    """
    if source.data == "synthetic":
        count = source.vehicles or SYNTHETIC_VEHICLES
        described = f"synthetic, {counted(count, 'vehicle')}, seed {source.seed}"
    else:
        folder = fleet_folder(source)
        described = fleet_source(folder)
        stored = len(vehicle_folders(folder))
        if source.vehicles > stored:
            raise SettingError(
                f"The fleet {source.data} has {counted(stored, 'vehicle')}, not the "
                f"{source.vehicles} asked for. Ask for fewer, or for 0: all of them."
            )
        count = source.vehicles or stored

    def vehicles() -> Iterable[Vehicle]:
        return source_vehicles(source)

    def told(built: int) -> None:
        if on_vehicle is not None:
            on_vehicle(built, count)

    if not needs_climb(feature_names(data.features)):
        return build_fleet(vehicles(), data, described, on_vehicle=told)
    if learned is not None:
        hilly = give_terrain(vehicles(), learned)
    else:
        hilly = driven(vehicles, data, terrain or TerrainSettings())
    return build_fleet(hilly, data, described, on_vehicle=told)


def source_vehicles(source: Source) -> Iterable[Vehicle]:
    """The vehicles themselves, one at a time."""
    if source.data == "synthetic":
        return synthetic_vehicles(source.vehicles or SYNTHETIC_VEHICLES, source.seed)
    return islice(read_fleet(fleet_folder(source)), source.vehicles or None)


def fleet_folder(source: Source) -> Path:
    """The folder of a stored fleet; raise if it is not there, and say where that is."""
    folder = Path(source.data)
    if folder.exists():
        return folder
    hint = ""
    if not folder.is_absolute():
        hint = f" '{folder}' is a relative path: it starts from the folder fedwatt is started in."
    raise DataError(
        f"{folder.absolute()} does not exist. 'fedwatt data synth' and 'fedwatt data import' make "
        f"one.{hint}"
    )


def driven(
    vehicles: Callable[[], Iterable[Vehicle]], data: DataSettings, terrain: TerrainSettings
) -> Iterable[Vehicle]:
    """The vehicles with climb and descent; telemetry is gone through twice rather than kept."""
    if terrain.source == "measured":
        return (with_measured_terrain(vehicle) for vehicle in vehicles())
    if terrain.source != "learn":
        return _with_field_of(Path(terrain.source), vehicles, data)
    return give_terrain(vehicles(), learned_fields(vehicles, data, terrain))


def _with_field_of(
    file: Path, vehicles: Callable[[], Iterable[Vehicle]], data: DataSettings
) -> Iterable[Vehicle]:
    """The vehicles with the hills of a file, unless it has seen what they are judged on."""
    field, taught = read_field(file), read_taught(file)
    names = [vehicle.name for vehicle in vehicles()] if data.held_out else []
    never = held_out_vehicles(names, data.held_out, data.split_seed)
    if taught is None:
        warn_unknown(file)
    for vehicle in vehicles():
        if taught is not None:
            taught.refuse(file, vehicle.name, data, held_out=vehicle.name in never)
        yield with_terrain(vehicle, field)


def learned_fields(
    vehicles: Callable[[], Iterable[Vehicle]],
    data: DataSettings,
    terrain: TerrainSettings,
    share: Share | None = None,
) -> Learned:
    """The fields that a run learns from its vehicles; those that are held out contribute none.

    `share` as in `learn`.
    """
    names = [vehicle.name for vehicle in vehicles()] if data.held_out else []
    never = held_out_vehicles(names, data.held_out, data.split_seed)
    contributors = frozenset(names) - never if names else None
    return learn(vehicles(), terrain, data, contributors=contributors, share=share)
