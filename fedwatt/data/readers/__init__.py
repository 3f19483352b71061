"""Read telemetry of any origin into vehicles: SI units, one sample a second, cleaned.

    for vehicle in import_ved(["VED/"], powertrain=("ev", "phev-electric")):
        print(vehicle.name, len(vehicle.trips), vehicle.facts["account"])

Importing this package loads polars.
"""

from fedwatt.data.cleaning.cleaning import PLAIN_CLEANING, VED_CLEANING, Cleaning
from fedwatt.data.readers.eved import import_eved
from fedwatt.data.readers.mapping import CsvMapping, load_mapping, shipped_mappings
from fedwatt.data.readers.mapping_reader import import_csv
from fedwatt.data.readers.powertrain import POWERTRAINS
from fedwatt.data.readers.stream import VehicleStream
from fedwatt.data.readers.sumo_output import import_sumo
from fedwatt.data.readers.ved import import_ved

__all__ = [
    "PLAIN_CLEANING", "POWERTRAINS", "VED_CLEANING", "Cleaning", "CsvMapping", "VehicleStream",
    "import_csv", "import_eved", "import_sumo", "import_ved", "load_mapping", "shipped_mappings",
]  # fmt: skip
