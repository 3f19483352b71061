"""Import in one call: VED, eVED, and plain tables through a mapping."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fedwatt.data.cleaning.cleaning import Cleaning
from fedwatt.data.readers.eved import EVED
from fedwatt.data.readers.mapping import CsvMapping, load_mapping
from fedwatt.data.readers.plain import PlainReader
from fedwatt.data.readers.stream import CleanVehicles, Progress
from fedwatt.data.readers.ved import VED, Format, VedReader


def import_ved(
    paths: Iterable[str | Path],
    *,
    powertrain: Sequence[str] = ("ev",),
    minimum_trips: int = 10,
    minimum_seconds: float = 120.0,
    minimum_metres: float = 500.0,
    maximum_gap_s: float = 10.0,
    maximum_standing_gap_s: float = 31.0,
    interval_s: float = 1.0,
    unlabelled: bool = False,
    progress: Progress | None = None,
) -> CleanVehicles:
    """Vehicles of VED, one at a time, from weekly CSV files, .7z archives, Parquet, or folders.

    Static .xlsx files named, found in the folders or lying beside the files give type and mass.
    `progress(done, total, what)` is called with bytes while reading and with rows while cleaning.
    """
    cleaning = Cleaning(
        minimum_trips=minimum_trips,
        minimum_seconds=minimum_seconds,
        minimum_metres=minimum_metres,
        maximum_gap_s=maximum_gap_s,
        maximum_standing_gap_s=maximum_standing_gap_s,
        interval_s=interval_s,
        unlabelled=unlabelled,
    )
    return _import(VED, paths, powertrain, cleaning, progress)


def import_eved(
    paths: Iterable[str | Path],
    *,
    powertrain: Sequence[str] = ("ev",),
    minimum_trips: int = 10,
    minimum_seconds: float = 120.0,
    minimum_metres: float = 500.0,
    maximum_gap_s: float = 10.0,
    maximum_standing_gap_s: float = 31.0,
    interval_s: float = 1.0,
    unlabelled: bool = False,
    progress: Progress | None = None,
) -> CleanVehicles:
    """Vehicles of eVED: as `import_ved`, with grade, elevation, speed limit and road flags."""
    cleaning = Cleaning(
        minimum_trips=minimum_trips,
        minimum_seconds=minimum_seconds,
        minimum_metres=minimum_metres,
        maximum_gap_s=maximum_gap_s,
        maximum_standing_gap_s=maximum_standing_gap_s,
        interval_s=interval_s,
        unlabelled=unlabelled,
    )
    return _import(EVED, paths, powertrain, cleaning, progress)


def import_csv(
    paths: Iterable[str | Path],
    mapping: str | Path | CsvMapping,
    *,
    minimum_trips: int = 1,
    minimum_seconds: float = 120.0,
    minimum_metres: float = 500.0,
    maximum_gap_s: float = 10.0,
    interval_s: float = 1.0,
    unlabelled: bool = False,
    progress: Progress | None = None,
) -> CleanVehicles:
    """Vehicles of any CSV or Parquet telemetry, read through a mapping.

    `mapping` is a TOML file, the name of a shipped mapping (`shipped_mappings()`), or one loaded.
    """
    loaded = mapping if isinstance(mapping, CsvMapping) else load_mapping(mapping)
    cleaning = Cleaning(
        minimum_trips=minimum_trips,
        minimum_seconds=minimum_seconds,
        minimum_metres=minimum_metres,
        maximum_gap_s=maximum_gap_s,
        interval_s=interval_s,
        unlabelled=unlabelled,
        rules={name: channel.rule for name, channel in loaded.channels.items() if channel.rule},
    )
    return CleanVehicles(PlainReader(paths, loaded, unlabelled=unlabelled), cleaning, progress)


def _import(
    form: Format,
    paths: Iterable[str | Path],
    powertrain: Sequence[str],
    cleaning: Cleaning,
    progress: Progress | None,
) -> CleanVehicles:
    reader = VedReader(paths, powertrain, unlabelled=cleaning.unlabelled, form=form)
    return CleanVehicles(reader, cleaning, progress)
