"""Read telemetry of any origin into vehicles: SI units, one sample a second, cleaned.

    for vehicle in import_ved(["VED/"], powertrain=("ev", "phev-electric")):
        print(vehicle.name, len(vehicle.trips), vehicle.facts["account"])

Importing this package loads polars.
"""

from fedwatt.telemetry.cleaning import PLAIN_CLEANING, VED_CLEANING, Cleaning
from fedwatt.telemetry.readers.mapping import CsvMapping, load_mapping, shipped_mappings
from fedwatt.telemetry.readers.mapping_reader import import_csv
from fedwatt.telemetry.readers.stream import VehicleStream
from fedwatt.telemetry.readers.ved import POWERTRAINS, import_eved, import_ved

__all__ = [
    "PLAIN_CLEANING",
    "POWERTRAINS",
    "VED_CLEANING",
    "Cleaning",
    "CsvMapping",
    "VehicleStream",
    "import_csv",
    "import_eved",
    "import_ved",
    "load_mapping",
    "shipped_mappings",
]
