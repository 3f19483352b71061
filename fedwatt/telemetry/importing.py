"""Turn recordings or a DataFrame into a fleet: read, clean, add elevation, write.

    fleet = fleet_from_frame(
        frame, vehicle="car", trip="trip", time="t",
        speed=("v", "km/h"), ambient="outside", voltage="U", current=("I", "A", "negative"),
    )
    for sentence in fleet.account: print(sentence)

Rows of a DataFrame are read through a mapping (`readers.mapping`) as `fedwatt data import csv`
reads files: the same checks, repairs and account.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import isfunction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from fedwatt import plugins
from fedwatt.errors import DataError, SettingError, unknown
from fedwatt.telemetry import readers
from fedwatt.telemetry.channels import CHANNELS, MAPPABLE
from fedwatt.telemetry.cleaning import PLAIN_CLEANING, VED_CLEANING, Cleaning
from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.cleaning.segments import SAME_TIME
from fedwatt.telemetry.readers.files import find_tables, listed
from fedwatt.telemetry.readers.mapping import CsvMapping, load_mapping, mapping_of
from fedwatt.telemetry.readers.mapping_reader import MappingReader, cleaning_of
from fedwatt.telemetry.readers.stream import Progress, Spill, VehicleStream, silent
from fedwatt.telemetry.store import load_fleet, write_fleet
from fedwatt.telemetry.terrain_model import Enrichment, read_terrain_model
from fedwatt.telemetry.trip import Vehicle
from fedwatt.windows.client import DataSettings, Fleet, build_fleet

USUAL_CLEANING = {
    "ved": VED_CLEANING,
    "eved": VED_CLEANING,
    "csv": PLAIN_CLEANING,
}
"""How each kind of recording is cleaned unless something else is asked for."""
ONE_VEHICLE = (
    "Warning: the fleet has one vehicle, so there is nothing to federate yet. If the recording "
    "holds several, import it with the column that names them ('auto' with --vehicle-column NAME, "
    "or [vehicle] in the mapping); 'fedwatt data merge' adds other fleets."
)


def own_reader(kind: str) -> Callable[..., Iterable[Vehicle]]:
    """Return a reader that somebody else has written, by a reference or the name of an entry point.

    It is called as reader(paths, cleaning=Cleaning, progress=Progress) and gives vehicles;
    `frames.vehicles_from_frame` makes them of a DataFrame, cleaned and accounted for.
    """
    if not plugins.refers(kind, "reader"):
        choices = ["auto", *USUAL_CLEANING, *plugins.entry_points("reader")]
        raise SettingError(unknown("kind of recordings", kind, choices))
    expected = "a function of paths, cleaning and progress"
    reader: Callable[..., Iterable[Vehicle]] = plugins.resolve(
        kind, "reader", expected, isfunction
    ).value
    return reader


def recorded_vehicles(
    kind: str,
    paths: Sequence[Path],
    cleaning: Cleaning,
    progress: Progress = silent,
    *,
    powertrain: Sequence[str] = ("ev",),
    mapping: str | None = None,
    own_gap: bool = False,
) -> Iterator[Vehicle]:
    """Yield the cleaned vehicles of recordings, one at a time.

    kind           one of `USUAL_CLEANING`, or a reference to a user's reader
    paths          files or folders
    cleaning       criteria of usable trips
    powertrain     VED and eVED: which vehicles (`readers.POWERTRAINS`)
    mapping        csv: a TOML file or the name of a shipped mapping
    own_gap        csv: the cleaning's longest gap counts, whatever the mapping has
    """
    how: dict[str, Any] = {"cleaning": cleaning, "progress": progress}
    if kind not in USUAL_CLEANING:
        return iter(own_reader(kind)(paths, **how))
    if kind == "csv":
        if mapping is None:
            raise SettingError(
                "Plain files need --map, which says what their columns are. "
                f"'fedwatt data map {paths[0]}' proposes one, and 'fedwatt data import "
                "auto' does without."
            )
        loaded = load_mapping(mapping)
        if own_gap:
            loaded = replace(loaded, maximum_gap_s=None)
        return readers.import_csv(paths, loaded, **how)
    read = readers.import_ved if kind == "ved" else readers.import_eved
    return read(paths, powertrain=powertrain, **how)


def import_fleet(
    out: Path,
    kind: str,
    paths: Sequence[Path],
    cleaning: Cleaning,
    progress: Progress = silent,
    *,
    dem: Path | None = None,
    **how: Any,
) -> list[str]:
    """Write the fleet of recordings to `out`; return sentences on what was kept, dropped and added.

    `dem` is a terrain model that adds elevation. `how` is that of `recorded_vehicles`.
    """
    vehicles = recorded_vehicles(kind, paths, cleaning, progress, **how)
    odd: list[str] = []
    one_way: list[str] = []
    watched = _watched(vehicles, odd, one_way)
    files = [*paths] if dem is None else [*paths, dem]
    source = f"{plugins.short(kind)}: {listed(path.name for path in files)}"
    sentences = []
    if dem is None:
        write_fleet(out, watched, source)
    else:
        enrichment = Enrichment(read_terrain_model([dem]))
        write_fleet(out, enrichment.enriched(watched), source)
        sentences = enrichment.sentences()
    if isinstance(vehicles, readers.VehicleStream):
        cleaned = [*vehicles.account.sentences(), *vehicles.passed_over]
        if vehicles.account.count("kept", "vehicles") == 1:
            cleaned.append(ONE_VEHICLE)
        account = vehicles.account
        if account.count("dropped", "rows", SAME_TIME) > account.count("kept", "rows"):
            cleaned.append(
                "Warning: most rows have the time of another row, and one of each is used. "
                "Spreadsheets drop seconds: export the recording again."
            )
        sentences = [*cleaned, *sentences]
    if odd:
        low, high = CAR_WH_PER_KM
        sentences.append(
            f"Warning: {listed(odd)}: a car takes {low} to {high} Wh/km. Is the unit of speed or "
            "power another, or is it a truck or bus (kind, in the mapping)?"
        )
    if one_way:
        sentences.append(
            f"Warning: {listed(one_way)}: no energy goes back into the pack. If braking charges "
            "it, a sign is missing, and energies are too high."
        )
    return sentences


CAR_WH_PER_KM = (40, 400)
LEAST_KM = 5.0


def _watched(vehicles: Iterable[Vehicle], odd: list[str], one_way: list[str]) -> Iterator[Vehicle]:
    """Yield the vehicles; add cars beyond `CAR_WH_PER_KM` to `odd`.

    Vehicles whose energy is never below 0 are added to `one_way`.
    """
    low, high = CAR_WH_PER_KM
    for vehicle in vehicles:
        measured = [trip for trip in vehicle.trips if "energy_wh" in trip.channels]
        km = sum(trip.metres for trip in measured) / 1000
        wh = sum(float(trip.channels["energy_wh"].sum()) for trip in measured)
        electric = vehicle.facts.get("powertrain") != "phev" and vehicle.kind == "passenger"
        if electric and km >= LEAST_KM and not low <= wh / km <= high:
            odd.append(f"{vehicle.name} takes {wh / km:,.0f} Wh/km")
        if km >= LEAST_KM and min(trip.channels["energy_wh"].min() for trip in measured) >= 0:
            one_way.append(vehicle.name)
        yield vehicle


UNITS = ("mps", "c", "w", "m", "deg", "v", "a", "wh")
SHORT = {
    name.rpartition("_")[0] if name.rpartition("_")[2] in UNITS else name: name for name in MAPPABLE
}
"""What a channel is called here → its name: "speed" is "speed_mps"."""

Column = str | tuple[str, ...]
"""A column's name; or its name and unit, and "negative" if it is below 0 while the pack gives
energy."""


def fleet_from_frame(
    frame: Any,
    *,
    vehicle: str,
    trip: str,
    time: Column,
    settings: DataSettings | None = None,
    cleaning: Cleaning = PLAIN_CLEANING,
    kind: str = "passenger",
    labels: str = "measured",
    facts: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    **channels: Column,
) -> Fleet:
    """Return the fleet in the rows of a pandas or polars DataFrame, cleaned as at import.

    vehicle, trip   columns with the names of vehicles and of their trips
    time            column of times: dates and times, or numbers and their unit, as in ("t", "ms");
                    seconds if none is given
    channels        what is measured: speed, voltage, current, power, energy_step, energy_total,
                    soc, ambient, ac, heater, latitude, longitude, elevation, grade, ...; as in
                    speed="v", in m/s, or speed=("v", "km/h")
    settings        how windows are made
    cleaning        which trips are usable
    kind, labels    "passenger", "truck" or "bus"; "measured" or "simulated"
    facts           what else is known of the vehicles, such as {"pack_capacity_wh": 42000}
    out             folder to store the fleet in, as `data import` does: runs on it can be resumed

    `Fleet.account` counts rows kept, repaired and dropped.
    """
    columns = {"vehicle": vehicle, "trip": trip, "time": time}
    description = {"kind": kind, "labels": labels, "facts": dict(facts or {})}
    stream = vehicles_from_frame(
        frame, columns, channels, cleaning=cleaning, description=description
    )
    settings = settings or DataSettings()
    if out is None:
        fleet = build_fleet(stream, settings, "frame")
    else:
        write_fleet(Path(out), stream, "frame")
        fleet = load_fleet(Path(out), settings)
    return replace(fleet, account=tuple(stream.account.sentences()))


def vehicles_from_frame(
    frame: Any,
    columns: Mapping[str, Column],
    channels: Mapping[str, Column],
    *,
    cleaning: Cleaning = PLAIN_CLEANING,
    progress: Progress | None = None,
    description: Mapping[str, Any] | None = None,
) -> VehicleStream:
    """Yield the cleaned vehicles of a DataFrame, for custom readers.

    `columns` are those of "vehicle", "trip" and "time"; otherwise as `fleet_from_frame`.
    """
    rows, unit = _timed(_as_polars(frame), columns["time"])
    tables: dict[str, Any] = {
        "time": {"column": _parts(columns["time"])[0], "unit": unit},
        "vehicle": {"column": columns["vehicle"]},
        "trip": {"column": columns["trip"]},
        "channels": {},
    }
    for name, column in channels.items():
        full = SHORT.get(name, name)
        if full not in MAPPABLE:
            raise SettingError(unknown("channel", name, SHORT))
        tables["channels"][full] = _channel(full, column)
    mapping = mapping_of(tables | dict(description or {}), "frame")
    for names in ("vehicle", "trip"):
        column = tables[names]["column"]
        if column not in rows.columns:
            raise DataError(unknown("column", column, rows.columns))
        rows = rows.with_columns(pl.col(column).cast(pl.String))
    reader = FrameReader(rows, mapping, unlabelled=cleaning.unlabelled)
    return VehicleStream(reader, cleaning_of(mapping, cleaning), progress)


class FrameReader(MappingReader):
    """A reader of a frame that writes it to a file first: rows are treated like those of files."""

    def __init__(self, frame: pl.DataFrame, mapping: CsvMapping, *, unlabelled: bool) -> None:
        super().__init__((), mapping, unlabelled=unlabelled)
        self._frame = frame

    def read(self, spill: Spill, progress: Progress) -> tuple[Account, tuple[str, ...]]:
        """Write the frame to a file and read that, as `MappingReader` reads its files."""
        with TemporaryDirectory(prefix="fedwatt-") as folder:
            file = Path(folder) / "frame.parquet"
            self._frame.write_parquet(file)
            self._tables = find_tables([file])
            return super().read(spill, progress)


def _as_polars(frame: Any) -> pl.DataFrame:
    """Return the rows of a polars or pandas frame, or of whatever hands them over as Arrow does."""
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame
    try:
        return pl.DataFrame(frame)
    except (TypeError, ValueError, ImportError) as error:
        raise DataError(
            f"A fleet is made of a pandas or polars DataFrame, not of {type(frame).__name__}: "
            f"{error}."
        ) from error


def _timed(frame: pl.DataFrame, time: Column) -> tuple[pl.DataFrame, str]:
    """Return the frame and the unit of its times; dates and times become seconds."""
    name, *unit = _parts(time)
    if name not in frame.columns:
        raise DataError(unknown("column", name, frame.columns))
    kind = frame.schema[name]
    if isinstance(kind, pl.Datetime | pl.Duration):
        time_column = pl.col(name).dt
        us = (
            time_column.epoch("us")
            if isinstance(kind, pl.Datetime)
            else time_column.total_microseconds()
        )
        return frame.with_columns(us.cast(pl.Float64) * 1e-6), "s"
    return frame, unit[0] if unit else "iso" if kind == pl.String else "s"


def _parts(column: Column) -> tuple[str, ...]:
    return (column,) if isinstance(column, str) else tuple(column)


def _channel(name: str, column: Column) -> dict[str, str]:
    """Return the table of a channel in a mapping."""
    text, *unit_words = _parts(column)
    base_unit = next(unit for unit, (factor, offset) in CHANNELS[name].units.items() if factor == 1)
    table = {"column": text, "unit": unit_words[0] if unit_words else base_unit}
    return table | ({"discharge": unit_words[1]} if len(unit_words) > 1 else {})
