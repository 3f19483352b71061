"""Read telemetry of any origin into clean trips: one schema, SI units, one sample a second.

for vehicle in import_ved(["VED/"], powertrain=("ev", "phev-electric")):
    print(vehicle.name, len(vehicle.trips), vehicle.facts["account"])

The names below are loaded on first use: a vehicle's computer resamples with `resample` and has no
polars.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedwatt.data.cleaning.account import Account
    from fedwatt.data.cleaning.cleaning import Cleaning
    from fedwatt.data.cleaning.records import CleanTrip, CleanVehicle
    from fedwatt.data.maps.elevation import read_terrain, with_elevation
    from fedwatt.data.maps.enrich import EnrichedVehicles
    from fedwatt.data.maps.osm import Extract
    from fedwatt.data.maps.roads import with_map
    from fedwatt.data.readers.importers import import_csv, import_eved, import_ved
    from fedwatt.data.readers.mapping import CsvMapping, load_mapping, shipped_mappings
    from fedwatt.data.readers.powertrain import POWERTRAINS
    from fedwatt.data.readers.propose import propose_mapping
    from fedwatt.data.readers.stream import CleanVehicles

_HOMES = {
    "POWERTRAINS": "readers.powertrain",
    "Account": "cleaning.account",
    "CleanTrip": "cleaning.records",
    "CleanVehicle": "cleaning.records",
    "CleanVehicles": "readers.stream",
    "Cleaning": "cleaning.cleaning",
    "CsvMapping": "readers.mapping",
    "EnrichedVehicles": "maps.enrich",
    "Extract": "maps.osm",
    "import_csv": "readers.importers",
    "import_eved": "readers.importers",
    "import_ved": "readers.importers",
    "load_mapping": "readers.mapping",
    "propose_mapping": "readers.propose",
    "read_terrain": "maps.elevation",
    "shipped_mappings": "readers.mapping",
    "with_elevation": "maps.elevation",
    "with_map": "maps.roads",
}

__all__ = [
    "POWERTRAINS",
    "Account",
    "CleanTrip",
    "CleanVehicle",
    "CleanVehicles",
    "Cleaning",
    "CsvMapping",
    "EnrichedVehicles",
    "Extract",
    "import_csv",
    "import_eved",
    "import_ved",
    "load_mapping",
    "propose_mapping",
    "read_terrain",
    "shipped_mappings",
    "with_elevation",
    "with_map",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedwatt.data.readers' has no attribute '{name}'")
    return getattr(import_module(f"fedwatt.data.{_HOMES[name]}"), name)
