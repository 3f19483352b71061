"""Read any CSV, Parquet or .xlsx telemetry through a mapping (`mapping.py`).

Dates and times as text become seconds since 1970 (UTC where a zone is written, else local).
Without a `format` these are tried: 2024-05-31 13:05:10.5, with or without seconds, a T in between
and a zone at the end; 31.05.2024 13:05:10. A time of day alone needs its format. A zone counts, so
that a trip over the end of summer time does not jump back an hour.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import TypeVar

import polars as pl

from fedwatt.errors import DataError, SettingError
from fedwatt.telemetry.channels import CHANNELS, DEGREE_MINUTE
from fedwatt.telemetry.cleaning import PLAIN_CLEANING, Cleaning
from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.cleaning.segments import DATED_S, split_at_pauses
from fedwatt.telemetry.readers.files import TableFile, find_tables
from fedwatt.telemetry.readers.mapping import (
    TIME,
    ChannelMap,
    CsvMapping,
    NameOrigin,
    TimeMap,
    load_mapping,
)
from fedwatt.telemetry.readers.stream import KEYS, Candidate, Progress, Spill, VehicleStream
from fedwatt.telemetry.readers.tables import (
    LOST,
    TableLayout,
    WantedColumn,
    read_tables,
)
from fedwatt.telemetry.trip import Vehicle

Numbers = TypeVar("Numbers", pl.Expr, pl.Series)
FORMATS = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M:%S%.f")
# Zones follow a time of day: the end of 29-03-2021 is no zone. Of other letters than Z, UTC and GMT
# nobody knows the offset: such times count as local.
_ZONE = (
    r"^(.*(?:\d[:.]\d\d(?:[:.]\d+)*|\d{8} \d{6}(?:\.\d+)?)(?: [AaPp][Mm])?) ?"
    r"(?:Z|[A-Z]{3,4}|([+-])(\d\d):?(\d\d)?)(?:\[[\w/]+\])?$"
)


def seconds(text: pl.Expr, form: str = "") -> pl.Expr:
    """Return the seconds of dates and times as text; null where they cannot be read."""
    if "%z" in form or "%Z" in form:
        return parsed(text, form)
    local, offset_s = without_zone(text)
    return (
        pl.coalesce(*(parsed(local, date_format) for date_format in ((form,) if form else FORMATS)))
        - offset_s
    )


def without_zone(text: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Return date and time in one form, and the seconds of their zone."""
    tidy = text.str.strip_chars().str.replace(r"^(\S*\d)T(\d)", "${1} ${2}")
    tidy = tidy.str.replace(r"(:\d\d:\d\d)[,:](\d)", "${1}.${2}")
    tidy = tidy.str.replace(r"(?i)\s?([ap])\.\s?m\.", " ${1}m")
    local, sign, hours, minutes = (tidy.str.extract(_ZONE, group) for group in (1, 2, 3, 4))
    ahead = pl.when(sign == "-").then(-1.0).otherwise(1.0)
    h, m = (part.cast(pl.Float64, strict=False).fill_null(0.0) for part in (hours, minutes))
    return pl.coalesce(local, tidy), ahead * (3600.0 * h + 60.0 * m)


def parsed(text: pl.Expr, form: str) -> pl.Expr:
    """Return the seconds of texts in one format."""
    if not any(code in form for code in ("%d", "%j")):
        since = text.str.to_time(form, strict=False)
        return since.cast(pl.Int64).cast(pl.Float64) * 1e-9
    parsed_time = text.str.to_datetime(form, strict=False, time_unit="us", ambiguous="earliest")
    return parsed_time.dt.epoch("us").cast(pl.Float64) * 1e-6


def joined(columns: Sequence[str]) -> pl.Expr:
    """Return date and time of day as one text, from several columns."""
    return pl.concat_str([pl.col(column).str.strip_chars() for column in columns], separator=" ")


MOSTLY = 0.5


def import_csv(
    paths: Iterable[str | Path],
    mapping: str | Path | CsvMapping,
    *,
    cleaning: Cleaning = PLAIN_CLEANING,
    progress: Progress | None = None,
) -> VehicleStream:
    """Return the vehicles of any CSV, Parquet or .xlsx telemetry, read through a mapping.

    `mapping` is a TOML file, the name of a shipped mapping (`shipped_mappings()`), or one loaded.
    """
    loaded = mapping if isinstance(mapping, CsvMapping) else load_mapping(mapping)
    reader = MappingReader(find_tables(paths), loaded, unlabelled=cleaning.unlabelled)
    return VehicleStream(reader, cleaning_of(loaded, cleaning), progress)


def cleaning_of(mapping: CsvMapping, cleaning: Cleaning) -> Cleaning:
    """Return the cleaning of trips that are read through a mapping.

    The mapping's longest gap counts unless the cleaning asks for another than the usual one.
    """
    charge_only = mapping.charge_only and not cleaning.unlabelled
    gap_s = cleaning.maximum_gap_s
    if mapping.maximum_gap_s is not None and gap_s == PLAIN_CLEANING.maximum_gap_s:
        gap_s = mapping.maximum_gap_s
    return replace(cleaning, charge_only=charge_only, maximum_gap_s=gap_s)


class MappingReader:
    """Reads mapped files into a spill, one key a vehicle."""

    def __init__(
        self, tables: Sequence[TableFile], mapping: CsvMapping, *, unlabelled: bool
    ) -> None:
        if not (mapping.has_energy or mapping.charge_only or unlabelled):
            raise SettingError(
                f"{mapping.source} maps no energy: map voltage_v and current_a, power_w, "
                "energy_step_wh or energy_total_wh, or at least soc; or ask for unlabelled trips."
            )
        self._mapping = mapping
        self._tables = tables
        self.columns = (*KEYS, *mapping.channels)
        self._codes: dict[tuple[str, str], int] = {}
        self._kinds: dict[str, set[str]] = {}

    def read(self, spill: Spill, progress: Progress) -> tuple[Account, tuple[str, ...]]:
        """Append the rows of every file to the spill, the temporary files by vehicle."""
        layout = _layout(self._mapping)
        add = partial(self._add, spill)
        account, passed_over = read_tables(self._tables, layout, add, progress)
        if not self._kinds:
            raise DataError(
                " ".join(passed_over) or self._no_vehicle(account.count("read", "rows"))
            )
        return account, passed_over

    def candidates(self) -> tuple[list[Candidate], Account]:
        """Return every vehicle, by name."""
        names = {code: trip for (_, trip), code in self._codes.items()}
        mapping = self._mapping
        chosen = []
        by_gaps = mapping.trip.source == "gaps"
        split = partial(split_at_pauses, pause_s=mapping.trip.pause) if by_gaps else None
        electric = mapping.facts.get("powertrain", "ev") == "ev"
        for name, kinds in sorted(self._kinds.items()):
            description = {"source": mapping.source, "file_kind": "+".join(sorted(kinds))}
            facts = {**description, **mapping.facts}
            vehicle = Vehicle(name, (), mapping.kind, mapping.labels, facts)
            chosen.append(Candidate(name, vehicle, electric, names.__getitem__, split=split))
        return chosen, Account()

    def _tidy(self, frame: pl.DataFrame, path: Path, source: int) -> pl.DataFrame:
        """Return rows of channels in their units, with the names of vehicle and trip."""
        present = set(frame.columns)
        mapping = self._mapping
        channels = mapping.channels.items()
        time_s = _seconds(mapping.time)
        by_gaps = mapping.trip.source == "gaps"
        if by_gaps:
            # One line of time for a vehicle, whatever files it lies in; but a clock that starts
            # with each file has one for each.
            trip = pl.when(time_s > DATED_S).then(pl.lit("")).otherwise(pl.lit(path.stem))
        else:
            trip = _name(mapping.trip, path)
        return frame.select(
            _name(mapping.vehicle, path).alias("vehicle"),
            trip.alias("trip_name"),
            pl.lit(0.0 if by_gaps else float(source)).alias("source"),
            # Dated times are on one clock; those of a file that starts at 0 are not.
            pl.when(time_s > DATED_S).then(0.0).alias("day"),
            pl.when(time_s.is_finite()).then(time_s).alias("time_s"),
            *(_channel(name, channel, present) for name, channel in channels),
        )

    def _add(self, spill: Spill, frame: pl.DataFrame, number: int, first_row: int) -> Account:
        """Add rows to the spill; count those without a vehicle, trip or time."""
        table = self._tables[number]
        keyed = self._tidy(frame, table.path, number)
        self._refuse_unreadable_times(frame, keyed, table.where, first_row)
        self._refuse_lost_letters(keyed, table.where, first_row)
        accounts = []
        for column, what in (("time_s", "time"), ("vehicle", "vehicle"), ("trip_name", "trip")):
            rows = keyed.height
            keyed = keyed.drop_nulls(column)
            accounts.append(Account.passed_over("rows", rows - keyed.height, f"without a {what}"))
        for part in keyed.partition_by("vehicle", maintain_order=True):
            vehicle = str(part["vehicle"][0])
            self._kinds.setdefault(vehicle, set()).add(table.kind)
            names = part["trip_name"].unique(maintain_order=True).to_list()
            codes = [
                float(self._codes.setdefault((vehicle, name), len(self._codes))) for name in names
            ]
            trip = pl.col("trip_name").replace_strict(names, codes, return_dtype=pl.Float64)
            spill.add(vehicle, part.with_columns(trip=trip).select(self.columns).to_numpy())
        return Account.total(accounts)

    def _no_vehicle(self, rows: int) -> str:
        """Return the reason why no row could be used: there is none, or none says whose and when it
        is.
        """
        first, *other_names = (table.path.name for table in self._tables)
        files = f"{first} and {len(other_names)} more" if other_names else first
        if not rows:
            return f"No rows in {files}, only a header. Export the recording again."
        return (
            f"None of the {rows:,} rows in {files} has a vehicle, a trip and a time. "
            f"Check [vehicle], [trip] and [time] in the mapping '{self._mapping.source}'."
        )

    def _refuse_unreadable_times(
        self, frame: pl.DataFrame, tidy: pl.DataFrame, where: str, row: int
    ) -> None:
        names = self._mapping.time.column
        time_texts = frame.select(time=joined(names) if len(names) > 1 else pl.col(names[0]))[
            "time"
        ]
        bad = time_texts.is_not_null() & tidy["time_s"].is_null()
        if tidy.height and int(bad.sum()) > MOSTLY * tidy.height:
            first = int(bad.arg_max() or 0)
            raise DataError(
                f"{where}, row {row + first}, column '{' '.join(names)}': "
                f"{time_texts[first]!r} is not "
                f"a time in unit '{self._mapping.time.unit}'. Set unit or format in [time]."
            )

    def _refuse_lost_letters(self, tidy: pl.DataFrame, where: str, row: int) -> None:
        """Refuse names with a lost letter: two of them could become one."""
        origins = {"vehicle": self._mapping.vehicle, "trip_name": self._mapping.trip}
        for key, origin in origins.items():
            lost = tidy[key].str.contains(LOST, literal=True).fill_null(False)
            if origin.column and lost.any():
                first = int(lost.arg_max() or 0)
                raise DataError(
                    f"{where}, row {row + first}, column '{origin.column}': a letter of the name "
                    f"{tidy[key][first]!r} is lost, and names that differ in it would become one. "
                    "Export the file again as UTF-8."
                )


def _layout(mapping: CsvMapping) -> TableLayout:
    is_text = mapping.time.unit == "iso"
    columns = {column: WantedColumn(text=is_text) for column in mapping.time.column}
    for origin in (mapping.vehicle, mapping.trip):
        columns |= {origin.column: WantedColumn(text=True)} if origin.column else {}
    for channel in mapping.channels.values():
        is_text = channel.unit == DEGREE_MINUTE
        wanted = WantedColumn(channel.aliases, text=is_text, required=not channel.optional)
        columns |= dict.fromkeys(channel.column, wanted)
    hint = f"The mapping '{mapping.source}' asks for it."
    return TableLayout(columns, mapping.form, hint=hint)


def _name(origin: NameOrigin, path: Path) -> pl.Expr:
    """Return the name of each row's vehicle or trip."""
    if origin.column:
        text = pl.col(origin.column).str.strip_chars()
        name = pl.coalesce(text.str.extract(origin.pattern), text) if origin.pattern else text
        return pl.when(name != "").then(name)
    if origin.name:
        return pl.lit(origin.name)
    if origin.source == "folder":
        return pl.lit(path.resolve().parent.name or "vehicle")
    match = re.search(origin.pattern, path.stem) if origin.pattern else None
    return pl.lit((match and match[1]) or path.stem)


def numbered(numbers: Numbers, unit: str) -> Numbers:
    """Return the seconds of times as numbers, a polars series or expression.

    A spreadsheet counts days from 30 December 1899.

    >>> numbered(pl.Series([1.5, 45_360.5]), "d").to_list()
    [129600.0, 1709985600.0]
    """
    if unit == "d":
        # Above this, 1998 of a spreadsheet, a day since 1970 would be in 2068 or later.
        numbers -= (numbers > 36_000).cast(pl.Float64) * 25_569
    return numbers * TIME[unit]


def _seconds(time: TimeMap) -> pl.Expr:
    if time.unit != "iso":
        return numbered(pl.col(time.column[0]), time.unit)
    return seconds(joined(time.column), time.format)


def _channel(name: str, channel: ChannelMap, present: set[str]) -> pl.Expr:
    if not present.issuperset(channel.column):
        return pl.lit(None, dtype=pl.Float64).alias(name)
    columns = [pl.col(column) for column in channel.column]
    value = columns[0] if len(columns) == 1 else reduce(add, (c * c for c in columns)).sqrt()
    if channel.factor != 1.0:
        value = value * channel.factor
    value = converted(value, name, channel.unit)
    return (-value if channel.discharge == "negative" else value).alias(name)


def converted(value: pl.Expr, channel: str, unit: str) -> pl.Expr:
    """Return a column of this unit in the channel's own.

    >>> pl.DataFrame({"v": [36.0]}).select(converted(pl.col("v"), "speed_mps", "km/h")).item()
    10.0
    """
    if channel == "grade" and unit == "degree":
        return value.radians().tan()
    if unit == DEGREE_MINUTE:
        return degrees(value)
    factor, offset = CHANNELS[channel].units[unit]
    return value * factor + offset


# Hemisphere or sign, degrees, minutes, seconds, hemisphere.
_POSITION = (
    r"^([NSEW+-])?\s*(\d{1,3}(?:\.\d+)?)[°\s]*"
    r"(?:[°\s](\d{1,2}(?:\.\d+)?)['′\s]*(?:['′\s](\d{1,2}(?:\.\d+)?)[\"″\s]*)?)?([NSEW])?$"
)


def degrees(text: pl.Expr) -> pl.Expr:
    """Return the degrees of positions as text; null where they cannot be read.

    >>> texts = pl.DataFrame({"x": ["9 56.16600", "-84 6.5", "84° 6' 30 W", "S 9.5", "none"]})
    >>> texts.select(degrees(pl.col("x")).round(5))["x"].to_list()
    [9.9361, -84.10833, -84.10833, -9.5, None]
    """
    tidy_text = text.str.strip_chars().str.to_uppercase().str.replace(",", ".", literal=True)
    full, minutes, part_seconds = (
        tidy_text.str.extract(_POSITION, group).cast(pl.Float64) for group in (2, 3, 4)
    )
    marks = [tidy_text.str.extract(_POSITION, group).is_in(["-", "S", "W"]) for group in (1, 5)]
    size = full + minutes.fill_null(0.0) / 60 + part_seconds.fill_null(0.0) / 3600
    return (
        pl.when(pl.any_horizontal(mark.fill_null(False) for mark in marks))
        .then(-size)
        .otherwise(size)
    )
