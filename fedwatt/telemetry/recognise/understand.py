"""Look at files of telemetry and decide what they are, each decision with its reason.

Files of a known program are recognised by the columns of its mapping's `signature`. Files with
other columns than most are read as well where they have what every trip needs, else left out.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedwatt.errors import DataError, SettingError, counted, unknown
from fedwatt.telemetry.channels import CHANNELS, ENERGY_SOURCES, MAPPABLE
from fedwatt.telemetry.cleaning.segments import SHUFFLED
from fedwatt.telemetry.readers.files import as_paths, find_tables
from fedwatt.telemetry.readers.mapping import named_columns, shipped_mappings, shipped_tables
from fedwatt.telemetry.readers.tables import COMMAS, left_out, tidy
from fedwatt.telemetry.recognise.channel_columns import (
    Guess,
    discharge_sign,
    find_channels,
    misfits,
    speed_by_positions,
)
from fedwatt.telemetry.recognise.header_words import fit
from fedwatt.telemetry.recognise.identity import (
    Clock,
    Spacing,
    are_drives,
    asked_for,
    find_clock,
    find_trip_column,
    find_vehicle_column,
    one_stretch,
    row_steps,
    spacing,
    trips_of_files,
    unused_ids,
    vehicles_of_files,
)
from fedwatt.telemetry.recognise.table_sample import Kind, TableSample, neighbours, survey

VED = {"daynum", "vehid", "trip", "timestamp(ms)", "hv battery current[a]"}


def known_format(columns: Iterable[str]) -> str:
    """Return the shipped mapping whose signature is among the columns, or "".

    >>> known_format(["date", "car_id", "drive_id", "speed", "power", "battery_level",
    ...               "ideal_battery_range_km"])
    'teslamate'
    """
    present = {tidy(name) for name in columns}
    signatures = {name: shipped_tables(name).get("signature") for name in shipped_mappings()}
    return next((n for n, s in signatures.items() if s and present.issuperset(map(tidy, s))), "")


def better_reader(columns: Iterable[str]) -> str:
    """Return the reader that knows more about these columns than a mapping says, or "".

    >>> better_reader(["DayNum", "VehId", "Trip", "Timestamp(ms)", "HV Battery Current[A]"])
    'ved'
    """
    present = {tidy(name) for name in columns}
    if not present.issuperset(VED):
        return ""
    return "eved" if "gradient" in present else "ved"


def tables_of(name: str, columns: Iterable[str]) -> dict[str, Any]:
    """Return the tables of a shipped mapping, without optional channels that the files do not
    have.
    """
    tables = shipped_tables(name)
    present = {tidy(column): column for column in columns}
    channels: dict[str, Any] = {}
    for channel, values in tables["channels"].items():
        spellings = map(tidy, [values["column"], *values.get("aliases", ())])
        matches = [present[spelling] for spelling in spellings if spelling in present]
        if matches:
            entries = {k: v for k, v in values.items() if k not in ("aliases", "optional")}
            channels[channel] = {**entries, "column": matches[0]}
    spelled = {key: _spelled(tables[key], present) for key in ("time", "vehicle", "trip")}
    return {**tables, **spelled, "channels": channels}


def _spelled(origin: dict[str, Any], present: Mapping[str, str]) -> dict[str, Any]:
    """Return a table that names a column, or several, as the files spell them."""
    spelled = [present.get(tidy(name), name) for name in named_columns(origin)]
    column = {"column": spelled[0] if len(spelled) == 1 else spelled} if spelled else {}
    return {**origin, **column}


Tables = dict[str, Any]
Reasons = dict[str, str]
PACK = {name for names in ENERGY_SOURCES for name in names}


def used_columns(tables: Tables, channels: Iterable[str]) -> set[str]:
    """Return the columns that a mapping names for time, vehicles, trips and channels."""
    named = [tables["time"], tables["vehicle"], tables["trip"]]
    named += [tables["channels"][name] for name in channels]
    return {column for table in named for column in named_columns(table)}


def unused_columns(sample: TableSample, tables: Tables) -> list[str]:
    """Return the columns of a sample that a mapping does not name."""
    used = used_columns(tables, tables["channels"])
    return [name for name in sample.columns if name not in used]


def read_along(
    other_kinds: Sequence[Kind], first: TableSample, clock: Clock, tables: Tables, reasons: Reasons
) -> tuple[list[Kind], list[str]]:
    """Return the other files that the mapping of `first` can read, and sentences on all of them.

    Channels that only they have go to the mapping; those that not all have become optional.
    """
    channels = tables["channels"]
    needed = {"speed_mps", *(PACK & set(channels) or {"soc"})} & set(channels)
    columns = sorted(used_columns(tables, needed))
    joined = []
    problems: dict[str, str] = {}
    for kind in other_kinds:
        if why := _why_not(kind.samples[0], first, columns):
            problems |= {path.name: why for path in kind.files}
        else:
            joined.append(kind)
    samples = [kind.samples[0] for kind in joined]
    for sample in samples:
        taken = [*first.columns, *used_columns(tables, channels)]
        for name, guess in find_channels(sample, taken, clock.seconds(sample)).items():
            if name not in channels and name not in PACK:
                channels[name] = {"column": guess.column, "unit": guess.unit}
                reasons[name] = guess.why
    sparse = []
    for channel in channels.values():
        named = set(named_columns(channel))
        if not all(named.issubset(sample.columns) for sample in (first, *samples)):
            channel["optional"] = True
            sparse += sorted(named)
    sentences = [f"Not all files have the columns {', '.join(sparse)}."] if sparse else []
    sentences += left_out(problems)
    if problems:
        sentences.append("Import recordings of another kind by themselves: 'fedwatt data merge'.")
    return joined, sentences


def _why_not(sample: TableSample, first: TableSample, columns: Sequence[str]) -> str:
    """Return the reason why a file cannot be read like the first, or ""."""
    missing = [f"'{column}'" for column in columns if column not in sample.columns]
    if missing:
        return f"without {', '.join(missing)}, which {first.path.name} has."
    if sample.layout.form != first.layout.form:
        return f"another separator, decimal sign or place of the header than {first.path.name}."
    return ""


ORDERS = ("day first", "month first")


@dataclass(frozen=True, kw_only=True)
class ImportAnswers:
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

    `first_path` is the first that the user named, `paths` are the tables in all of them that can be
    read. `format` names the shipped mapping that knows them, "" where none does. `sample` is that
    of the first file.
    """

    first_path: Path
    paths: tuple[Path, ...]
    sample: TableSample
    tables: Tables
    reasons: Mapping[str, str]
    spacing: Spacing
    format: str = ""
    remarks: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()

    @property
    def reader(self) -> str:
        """The reader of these files: "csv", through the mapping, or one that knows them better."""
        return better_reader(self.sample.columns) or "csv"

    @property
    def unused(self) -> list[str]:
        """Columns that the mapping does not name."""
        return unused_columns(self.sample, self.tables)


def understand(
    paths: Sequence[str | Path] | str | Path, answers: ImportAnswers | None = None
) -> Understanding:
    """Return how files or folders are to be read: the mapping with reasons, remarks, questions."""
    answers = answers or ImportAnswers()
    tables_found = find_tables(paths)
    damaged = {table.where: table.problem for table in tables_found if table.problem}
    files = [table.path for table in tables_found if not table.problem]
    # One file of a folder is understood as all of the folder is.
    alone = len(files) == 1 and tables_found[0].named
    beside = neighbours(as_paths(paths)[0]) if alone else files
    usual, other_kinds, remarks = survey(beside)
    samples = usual.samples
    first = samples[0]
    name = known_format(first.columns) if answers == ImportAnswers() else ""
    if name:
        tables = tables_of(name, first.columns)
        why = f"as files of {tables['name']} have it"
        reasons = dict.fromkeys(("time", "vehicle", "trip", *tables["channels"]), why)
        time = tables["time"]
        clock = Clock(named_columns(time), time["unit"], why, time.get("format", ""))
        # Programs write speed in the unit that they are set to.
        channels = tables["channels"]
        stated = {c: Guess(str(v["column"]), v["unit"], why) for c, v in channels.items()}
        speed = speed_by_positions(first, stated, clock.seconds(first))
        channels["speed_mps"]["unit"] = speed.unit
        reasons["speed_mps"] = speed.why
    else:
        clock = find_clock(samples, answers.dates)
        tables, reasons = _decided(samples, clock, answers)
    joined, sentences = read_along(other_kinds, first, clock, tables, reasons)
    samples = [*samples, *(kind.samples[0] for kind in joined)]
    readable = {path for kind in (usual, *joined) for path in kind.files}
    times = [clock.seconds(sample) for sample in samples]
    apart = spacing(row_steps(samples, times, tables["vehicle"].get("column", "")))
    questions: tuple[str, ...] = ()
    if not name:
        questions = _settle_identity(samples, times, apart, tables, reasons, sorted(readable))
        questions += misfits(first, unused_columns(first, tables), tables["channels"])
    if tables["trip"].get("from") == "gaps":
        tables["trip"]["pause"] = round(apart.pause_s)
    form = asdict(first.layout.form)
    plain_form = asdict(COMMAS)
    tables["file"] = {key: value for key, value in form.items() if value != plain_form[key]}
    tables["cleaning"] = {"maximum_gap": apart.maximum_gap_s}
    reasons["cleaning"] = apart.sentence()
    return Understanding(
        first_path=as_paths(paths)[0],
        paths=tuple(path for path in files if path in readable),
        sample=first,
        tables=tables,
        reasons=reasons,
        spacing=apart,
        format=name,
        remarks=(*sentences, *remarks, *left_out(damaged)),
        questions=questions,
    )


def _decided(
    samples: Sequence[TableSample], clock: Clock, answers: ImportAnswers
) -> tuple[Tables, Reasons]:
    """Return the mapping of files that no shipped mapping knows, as far as columns tell."""
    first = samples[0]
    times = clock.seconds(first)
    taken = [*clock.columns, answers.vehicle, answers.trip]
    channels = find_channels(first, taken, times)
    busy = {*taken, *(guess.column for guess in channels.values())}
    free = [name for name in first.columns if name not in busy and not fit(name, "odometer")]
    trip, trip_why = asked_for(samples, answers.trip) or find_trip_column(first, free)
    remaining = [name for name in free if name != trip]
    vehicle, vehicle_why = asked_for(samples, answers.vehicle) or find_vehicle_column(
        first, remaining, times
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
    # A clock that seldom goes back starts anew with each drive.
    back = np.diff(times.to_numpy(), prepend=np.nan) < 0
    drives = pl.Series("number of drive", np.cumsum(back) * (back.mean() < SHUFFLED))
    rows = pl.DataFrame([*keys, drives, times.alias("seconds of time")])
    order = rows.select(pl.arg_sort_by(rows.columns)).to_series()
    for name, guess in channels.items():
        tables["channels"][name] = {"column": guess.column, "unit": guess.unit}
        reasons[name] = guess.why
        if CHANNELS[name].discharges:
            sign, why = discharge_sign(first, name, channels, order)
            tables["channels"][name]["discharge"] = sign
            reasons[f"{name}.discharge"] = why
    return tables, reasons


def _settle_identity(
    samples: Sequence[TableSample],
    times: Sequence[pl.Series],
    apart: Spacing,
    tables: Tables,
    reasons: Reasons,
    files: Sequence[Path],
) -> tuple[str, ...]:
    """Add [vehicle] and [trip] from files and pauses; return questions to the user."""
    one_each = [one_stretch(time, apart.pause_s) for time in times]
    if not tables["vehicle"]:
        tables["vehicle"], reasons["vehicle"] = vehicles_of_files(files, times, one_each)
    if not tables["trip"]:
        unnamed = reasons["trip"] or "no column names trips"
        origin = trips_of_files(files, tables["vehicle"], one_each, apart.pause_s, unnamed)
        tables["trip"], reasons["trip"] = origin
    if "column" in tables["vehicle"]:
        return ()
    return unused_ids(samples[0], unused_columns(samples[0], tables))


READINGS = 3
ROUGH_S = 5.0
"""Readings of the pack that are further apart make rough labels: acceleration takes seconds."""
NAMES_FROM = {
    "file": "one a file",
    "folder": "one a folder",
    "gaps": "cut at pauses",
}


@dataclass(frozen=True)
class ColumnLine:
    """A column, what it is taken as, its unit, three readings, and why."""

    column: str
    taken_as: str
    unit: str
    readings: tuple[str, ...]
    why: str


def column_lines(understanding: Understanding) -> list[ColumnLine]:
    """Return a line for each column of the file, in its order."""
    tables = understanding.tables
    reasons = understanding.reasons
    time = tables["time"]
    unit = "text" if time["unit"] == "iso" else time["unit"]
    lines = dict.fromkeys(named_columns(time), ("time", unit, reasons["time"]))
    for key in ("vehicle", "trip"):
        if "column" in tables[key]:
            lines[tables[key]["column"]] = (key, "", reasons[key])
    for name, channel in tables["channels"].items():
        why = reasons[name]
        if sign := reasons.get(f"{name}.discharge"):
            why += f"; discharge is {channel['discharge']}: {sign}"
        for column in named_columns(channel):
            lines[column] = (name, channel["unit"], why)
    column_rows = []
    for column in understanding.sample.columns:
        taken_as, unit, why = lines.get(column, ("", "", ""))
        readings = _readings(understanding.sample, column)
        column_rows.append(ColumnLine(column, taken_as, unit, readings, why))
    return column_rows


def _readings(sample: TableSample, column: str) -> tuple[str, ...]:
    """Return readings from the beginning, the middle and the end of a column."""
    values = sample.rows[column].drop_nulls()
    places = np.linspace(0, len(values) - 1, min(READINGS, len(values))).astype(int)
    return tuple(str(values[int(place)]) for place in places)


def sentences(understanding: Understanding) -> list[str]:
    """Return sentences on the files, their vehicles, the row spacing and the bridged gap."""
    format_note = (
        f" in the format of {understanding.tables['name']}" if understanding.format else ""
    )
    lines = [f"Files: {counted(len(understanding.paths), 'file')}{format_note}."]
    for key in ("vehicle", "trip"):
        how, text = next(iter(understanding.tables[key].items()))
        origins = {"column": f"by column '{text}'", "name": f"all '{text}'"}
        lines.append(
            f"{key.capitalize()}s: {origins.get(how) or NAMES_FROM[text]} "
            f"({understanding.reasons[key]})."
        )
    gap = understanding.spacing.maximum_gap_s
    lines.append(
        f"Interval: {understanding.spacing.sentence()}. "
        f"Gaps up to {gap:g} s are bridged, longer ones cut "
        "a trip; --max-gap sets another limit."
    )
    counted_energy = {"energy_step_wh", "energy_total_wh"} & set(understanding.tables["channels"])
    if understanding.spacing.interval_s > ROUGH_S and not counted_energy:
        apart = f"{understanding.spacing.interval_s:.3g} s"
        lines.append(
            f"Labels: with a reading of the pack only every {apart}, energy is a sum of samples "
            "that misses what happens in between. Expect large errors on short trips; a logger "
            "that counts energy itself would not have them."
        )
    return [*lines, *understanding.remarks, *understanding.questions]


def refuse_incomplete(understanding: Understanding) -> None:
    """Refuse files in which no speed, or nothing of the pack, was recognised."""
    channels = understanding.tables["channels"]
    name = understanding.sample.path.name
    advice = (
        f"Its columns are {', '.join(understanding.sample.columns)}. "
        f"'fedwatt data map {understanding.first_path} "
        "--out map.toml' writes a mapping to complete, and 'fedwatt data import csv' reads with it."
    )
    if "speed_mps" not in channels:
        raise DataError(f"{name}: no column looks like the vehicle's speed in numbers. {advice}")
    if "soc" not in channels and not any(all(n in channels for n in s) for s in ENERGY_SOURCES):
        raise DataError(
            f"{name}: no column looks like energy. A fleet needs pack voltage and current, power, "
            f"energy or at least a state of charge. {advice}"
        )


_quoted = partial(json.dumps, ensure_ascii=False)  # TOML's strings are JSON's


def mapping_text(understanding: Understanding) -> str:
    """Return the mapping of what was understood, as TOML; what is guessed says so."""
    tables = understanding.tables
    reasons = understanding.reasons
    sample = understanding.sample
    head = f"Proposed for {sample.path.name}. Check every line."
    if understanding.format:
        head = f"{tables['name']}: the mapping '{understanding.format}' that fedwatt has for it."
    lines = [f"# {head}", ""]
    lines += [f"name = {_quoted(tables.get('name', sample.path.stem))}"]
    lines += [f'kind = "{tables.get("kind", "passenger")}"       # passenger, truck or bus']
    lines += [f'labels = "{tables.get("labels", "measured")}"      # measured or simulated', ""]
    lines += _table("file", tables["file"])
    for key in ("time", "vehicle", "trip"):
        lines += _table(key, tables[key], reasons.get(key, ""))
    for name in MAPPABLE:
        if name in tables["channels"]:
            sign = reasons.get(f"{name}.discharge", "")
            why = reasons.get(name, "")
            lines += _table(f"channels.{name}", tables["channels"][name], why, discharge=sign)
    if "speed_mps" not in tables["channels"]:
        lines += ["# No column looks like speed. Every trip needs it:", "# [channels.speed_mps]"]
        lines += ['# column = "..."', '# unit = "km/h"', ""]
    lines += _table("cleaning", tables["cleaning"], reasons["cleaning"])
    lines += _table("facts", tables.get("facts", {}))
    if understanding.unused:
        lines += ["# Not used: " + ", ".join(understanding.unused)]
    lines += [f"# {question}" for question in understanding.questions]
    return "\n".join([*lines, "", *_free(tables["channels"])]).rstrip() + "\n"


def _table(name: str, values: dict[str, Any], why: str = "", **reasons: str) -> list[str]:
    """Return the lines of a TOML table, none if it is empty.

    `why` stands behind its unit or, without one, behind its first line; `reasons` behind others.
    """
    if not values:
        return []
    decided = "unit" if "unit" in values else next(iter(values))
    reasons = {decided: why, **reasons}
    comments = {key: f"    # {reason}" for key, reason in reasons.items() if reason}
    lines = [f"{key} = {_quoted(value)}{comments.get(key, '')}" for key, value in values.items()]
    return [f"[{name}]", *lines, ""]


def _free(taken: dict[str, Any]) -> list[str]:
    """Return the channels that no column was given to, as comments: name, meaning, units."""
    free = {name: CHANNELS[name] for name in MAPPABLE if name not in taken}
    lines = [f"# [channels.{n}]    {c.meaning}; {', '.join(c.units)}" for n, c in free.items()]
    return ["# Channels still free, each with the units it may have:", *lines] if free else []
