"""Read telemetry of any origin into clean trips: one schema, SI units, one sample a second.

for vehicle in import_ved(["VED/"], powertrain=("ev", "phev-electric")):
    print(vehicle.name, len(vehicle.trips), vehicle.facts["account"])

The names below are loaded on first use: a vehicle's computer resamples with `resample` and has no
polars.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedwatt.telemetry.account import Account
    from fedwatt.telemetry.cleaning import Cleaning
    from fedwatt.telemetry.elevation import read_terrain, with_elevation
    from fedwatt.telemetry.enrich import EnrichedVehicles
    from fedwatt.telemetry.importers import import_csv, import_eved, import_ved
    from fedwatt.telemetry.mapping import CsvMapping, load_mapping, shipped_mappings
    from fedwatt.telemetry.osm import Extract
    from fedwatt.telemetry.powertrain import POWERTRAINS
    from fedwatt.telemetry.propose import propose_mapping
    from fedwatt.telemetry.records import CleanTrip, CleanVehicle
    from fedwatt.telemetry.roads import with_map
    from fedwatt.telemetry.stream import CleanVehicles

_HOMES = {
    "POWERTRAINS": "powertrain",
    "Account": "account",
    "CleanTrip": "records",
    "CleanVehicle": "records",
    "CleanVehicles": "stream",
    "Cleaning": "cleaning",
    "CsvMapping": "mapping",
    "EnrichedVehicles": "enrich",
    "Extract": "osm",
    "import_csv": "importers",
    "import_eved": "importers",
    "import_ved": "importers",
    "load_mapping": "mapping",
    "propose_mapping": "propose",
    "read_terrain": "elevation",
    "shipped_mappings": "mapping",
    "with_elevation": "elevation",
    "with_map": "roads",
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
        raise AttributeError(f"module 'fedwatt.telemetry' has no attribute '{name}'")
    return getattr(import_module(f"fedwatt.telemetry.{_HOMES[name]}"), name)
