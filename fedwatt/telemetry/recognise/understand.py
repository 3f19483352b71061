"""Look at files of telemetry and decide what they are; every decision comes with its reason."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fedwatt.errors import SettingError, unknown
from fedwatt.telemetry.channels import CHANNELS
from fedwatt.telemetry.readers.find_files import as_paths, find_tables
from fedwatt.telemetry.readers.mapping import named_columns
from fedwatt.telemetry.readers.table_blocks import COMMAS
from fedwatt.telemetry.recognise.channel_columns import discharge_sign, find_channels
from fedwatt.telemetry.recognise.clock import Clock, find_clock
from fedwatt.telemetry.recognise.header_words import fit
from fedwatt.telemetry.recognise.identity import (
    are_drives,
    asked_for,
    find_trip_column,
    find_vehicle_column,
    one_stretch,
    trips_of_files,
    unused_ids,
    vehicles_of_files,
)
from fedwatt.telemetry.recognise.known_format import better_reader, known_format, tables_of
from fedwatt.telemetry.recognise.other_columns import read_along, used_columns
from fedwatt.telemetry.recognise.spacing import Spacing, spacing
from fedwatt.telemetry.recognise.table_sample import TableSample, files_alike
from fedwatt.telemetry.trip import FloatArray

TRACKS = ("latitude_deg", "longitude_deg", "soc")
"""Channels that change steadily in a vehicle."""
Tables = dict[str, Any]
Reasons = dict[str, str]


ORDERS = ("day first", "month first")


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The user's answers in advance: columns of vehicles and trips, "day first", "month first"."""

    vehicle: str = ""
    trip: str = ""
    dates: str = ""

    def __post_init__(self) -> None:
        if self.dates not in ("", *ORDERS):
            raise SettingError(unknown("order of dates", self.dates, ORDERS))


@dataclass(frozen=True, kw_only=True)
class Understanding:
    """A recognised recording: `tables` is the mapping, `reasons` says why, by key of the mapping.

    `format` names the shipped mapping that knows these files, "" where none does. `sample` is that
    of the first file.
    """

    paths: tuple[Path, ...]
    sample: TableSample
    tables: Tables
    reasons: Mapping[str, str]
    spacing: Spacing
    format: str = ""
    remarks: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()

    @property
    def unused(self) -> list[str]:
        """Columns that the mapping does not name."""
        used = used_columns(self.tables, self.tables["channels"])
        return [name for name in self.sample.columns if name not in used]


def understand(
    paths: Sequence[str | Path] | str | Path, answers: Answers | None = None
) -> Understanding:
    """Look at files or folders and decide what they are."""
    answers = answers or Answers()
    files_found = [table.path for table in find_tables(as_paths(paths))]
    samples, different, files, remarks = files_alike(files_found)
    first = samples[0]
    name = known_format(first.columns) if answers == Answers() else ""
    if name:
        tables = tables_of(name, first.columns)
        why = f"as files of {tables['name']} have it"
        reasons = dict.fromkeys(("time", "vehicle", "trip", *tables["channels"]), why)
        time = tables["time"]
        clock = Clock(named_columns(time), time["unit"], time.get("format", ""), "", absolute=True)
    else:
        clock = find_clock(samples, answers.dates)
        tables, reasons = _decided(samples, clock, answers)
    joined, sentences = read_along(different, first, clock, tables, reasons)
    left_out = {sample.path for sample in different if sample not in joined}
    samples, files = [*samples, *joined], [path for path in files if path not in left_out]
    times = [clock.seconds(sample) for sample in samples]
    apart = spacing(_stretches(samples, times, tables["vehicle"].get("column", "")))
    questions: tuple[str, ...] = ()
    if not name:
        questions = _settle_identity(samples, times, apart, tables, reasons, files)
    if tables["trip"].get("from") == "gaps":
        tables["trip"]["pause"] = round(apart.pause_s)
    form = asdict(first.layout.form)
    usual = asdict(COMMAS)
    tables["file"] = {key: value for key, value in form.items() if value != usual[key]}
    tables["cleaning"] = {"maximum_gap": apart.maximum_gap_s}
    reasons["cleaning"] = apart.sentence()
    return Understanding(
        paths=tuple(files),
        sample=first,
        tables=tables,
        reasons=reasons,
        spacing=apart,
        format=name,
        remarks=(*sentences, *remarks, *better_reader(first.columns)),
        questions=questions,
    )


def _decided(
    samples: Sequence[TableSample], clock: Clock, answers: Answers
) -> tuple[Tables, Reasons]:
    """Return the mapping of files that no shipped mapping knows, as far as columns tell."""
    first = samples[0]
    times = clock.seconds(first)
    taken = [*clock.columns, answers.vehicle, answers.trip]
    channels = find_channels(first, taken, times)
    busy = {*taken, *(guess.column for guess in channels.values())}
    free = [name for name in first.columns if name not in busy and not fit(name, "odometer")]
    trip, trip_why = (
        asked_for(samples, answers.trip) if answers.trip else find_trip_column(first, free)
    )
    remaining = [name for name in free if name != trip]
    tracks = [channels[name].column for name in TRACKS if name in channels]
    tracks += [name for name in first.columns if fit(name, "odometer") and name not in busy]
    vehicle, vehicle_why = (
        asked_for(samples, answers.vehicle)
        if answers.vehicle
        else find_vehicle_column(first, remaining, times, tracks)
    )
    if trip and not answers.trip and not are_drives(first, times, vehicle, trip):
        trip, trip_why = "", f"values of '{trip}' come again after pauses or change in every row"
    columns = clock.columns[0] if len(clock.columns) == 1 else list(clock.columns)
    time = {"column": columns, "unit": clock.unit}
    tables: Tables = {
        "time": {**time, "format": clock.form} if clock.form else time,
        "vehicle": {"column": vehicle} if vehicle else {},
        "trip": {"column": trip} if trip else {},
        "channels": {},
    }
    reasons = {"time": clock.why, "vehicle": vehicle_why, "trip": trip_why}
    keys = [first.rows[name] for name in (vehicle, trip) if name]
    order = _order([*keys, times.alias("seconds of time")])
    for name, guess in channels.items():
        tables["channels"][name] = {"column": guess.column, "unit": guess.unit}
        reasons[name] = guess.why
        if CHANNELS[name].discharges:
            sign, why = discharge_sign(first, name, channels, order)
            tables["channels"][name]["discharge"] = sign
            reasons[f"{name}.discharge"] = why
    return tables, reasons


def _order(keys: Sequence[pl.Series]) -> pl.Series:
    """Rows sorted by vehicle, trip and time, as far as they are known."""
    return (
        pl.DataFrame(keys)
        .with_row_index("number of row")
        .sort(pl.exclude("number of row"))["number of row"]
    )


def _settle_identity(
    samples: Sequence[TableSample],
    times: Sequence[pl.Series],
    apart: Spacing,
    tables: Tables,
    reasons: Reasons,
    files: Sequence[Path],
) -> tuple[str, ...]:
    """Complete [vehicle] and [trip] from files and pauses; what is left to ask the user."""
    one_each = [one_stretch(time, apart.pause_s) for time in times]
    if not tables["vehicle"]:
        tables["vehicle"], reasons["vehicle"] = vehicles_of_files(files, times, one_each)
    if not tables["trip"]:
        unnamed = reasons["trip"] or "no column names trips"
        origin = trips_of_files(files, tables["vehicle"], one_each, apart.pause_s, unnamed)
        tables["trip"], reasons["trip"] = origin
    if "column" in tables["vehicle"]:
        return ()
    used = used_columns(tables, tables["channels"])
    return unused_ids(samples[0], [name for name in samples[0].columns if name not in used])


def _stretches(
    samples: Sequence[TableSample], times: Sequence[pl.Series], vehicle: str
) -> list[FloatArray]:
    """Return times of each vehicle in each piece of each file."""
    keys = ["#", vehicle] if vehicle else ["#"]
    stretches = []
    for sample, time in zip(samples, times, strict=True):
        parts = sample.rows.select(keys).with_columns(time.alias("time")).partition_by(keys)
        stretches += [part["time"].drop_nulls().to_numpy() for part in parts]
    return stretches
