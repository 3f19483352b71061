"""Import in one call: VED, eVED, and plain tables through a mapping.

weekly = replace(VED_CLEANING, minimum_trips=3)
for vehicle in import_ved(["VED/"], powertrain=("ev",), cleaning=weekly):
print(vehicle.name, len(vehicle.trips), vehicle.facts["account"])
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from fedwatt.data.cleaning.cleaning import PLAIN_CLEANING, VED_CLEANING, Cleaning
from fedwatt.data.readers.eved import EVED
from fedwatt.data.readers.mapping import CsvMapping, load_mapping
from fedwatt.data.readers.mapping_reader import MappingReader
from fedwatt.data.readers.stream import Progress, VehicleStream
from fedwatt.data.readers.ved import VED, VedFormat, VedReader


def import_ved(
    paths: Iterable[str | Path],
    *,
    powertrain: Sequence[str] = ("ev",),
    cleaning: Cleaning = VED_CLEANING,
    progress: Progress | None = None,
    form: VedFormat = VED,
) -> VehicleStream:
    """Vehicles of VED, one at a time, from weekly CSV files, .7z archives, Parquet, or folders.

    Static .xlsx files named, found in the folders or lying beside the files give type and mass.
    `progress(done, total, what)` is called with bytes while reading and with rows while cleaning.
    """
    reader = VedReader(paths, powertrain, unlabelled=cleaning.unlabelled, form=form)
    return VehicleStream(reader, cleaning, progress)


def import_eved(
    paths: Iterable[str | Path],
    *,
    powertrain: Sequence[str] = ("ev",),
    cleaning: Cleaning = VED_CLEANING,
    progress: Progress | None = None,
) -> VehicleStream:
    """Vehicles of eVED: as `import_ved`, with grade, elevation, speed limit and road flags."""
    return import_ved(paths, powertrain=powertrain, cleaning=cleaning, progress=progress, form=EVED)


def import_csv(
    paths: Iterable[str | Path],
    mapping: str | Path | CsvMapping,
    *,
    cleaning: Cleaning = PLAIN_CLEANING,
    progress: Progress | None = None,
) -> VehicleStream:
    """Vehicles of any CSV or Parquet telemetry, read through a mapping.

    `mapping` is a TOML file, the name of a shipped mapping (`shipped_mappings()`), or one loaded.
    """
    loaded = mapping if isinstance(mapping, CsvMapping) else load_mapping(mapping)
    rules = {name: channel.rule for name, channel in loaded.channels.items() if channel.rule}
    reader = MappingReader(paths, loaded, unlabelled=cleaning.unlabelled)
    return VehicleStream(reader, replace(cleaning, rules={**rules, **cleaning.rules}), progress)
