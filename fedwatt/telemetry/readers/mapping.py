"""A small TOML file that says what the columns of any CSV or Parquet telemetry mean.

    [time]
    column = "t"
    unit = "s"                  # s, ms, us, ns, min, h, d; "iso" for dates and times as text
    [vehicle]
    column = "car"              # or name = "bus-7", or from = "file" or "folder"
    [trip]
    from = "file"               # one file a trip; or column = "trip"; or from = "gaps"
    [channels.speed_mps]
    column = "v"
    unit = "km/h"
    [channels.current_a]
    column = "I"
    unit = "A"
    discharge = "negative"      # the sign of the number while the pack gives energy

Energy comes from voltage_v and current_a, from power_w, from energy_step_wh (since the row before)
or from energy_total_wh (a counter); soc alone is enough for models of the state of charge. A date
and a time of day in two columns are written column = ["Date", "Time"]. Optional:

    [file]                      separator, decimal (","), thousands ("."), skip_rows, units_row
    [time] format               of dates as text, such as "%m/%d/%Y %H:%M:%S"
    [vehicle] pattern           expression whose group is the name in the file's or column's text
    [trip] pause                with from = "gaps": what ends a trip, in s (300)
    [channels.ID] factor        what numbers are multiplied by before their unit counts
    [cleaning] maximum_gap      longest gap to bridge, in s, unless the import says another
    [facts]                     remarks
    signature                   columns by which 'data import auto' knows files of this kind
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from fedwatt.errors import SettingError, unknown
from fedwatt.files import parse_toml
from fedwatt.settings import from_table
from fedwatt.telemetry.channels import CHANNELS, ENERGY_SOURCES, MAPPABLE
from fedwatt.telemetry.readers.tables import COMMAS, TextForm
from fedwatt.telemetry.trip import KINDS, LABELS

SHIPPED = resources.files("fedwatt.telemetry.readers") / "mappings"
# Seconds in a unit of time.
TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "d": 86_400.0}
SIGNED = tuple(name for name, channel in CHANNELS.items() if channel.discharges)
KEYS = (
    *("name", "kind", "labels", "signature", "file", "time", "vehicle", "trip", "channels"),
    *("cleaning", "facts"),
)
T = TypeVar("T")


@dataclass(frozen=True)
class TimeMap:
    """Column of time (or of date and time of day), its unit, and the format of text."""

    column: tuple[str, ...]
    unit: str = "s"
    format: str = ""


@dataclass(frozen=True)
class NameOrigin:
    """Origin of the names of vehicles or trips: a column, one name for all, or a source.

    source    "file", "folder" or "gaps", the key `from`
    pattern   the expression whose group is the vehicle's name in the text; "" for all of it
    pause     what ends a trip, s
    """

    column: str = ""
    name: str = ""
    source: str = ""
    pattern: str = ""
    pause: float = 300.0


@dataclass(frozen=True)
class ChannelMap:
    """Column (or columns of a vector, whose length counts), unit and sign of one channel."""

    column: tuple[str, ...]
    unit: str
    aliases: tuple[str, ...] = ()
    discharge: str = "positive"
    optional: bool = False
    factor: float = 1.0


@dataclass(frozen=True)
class GapLimit:
    """Longest gap to bridge, s; None leaves it to the import."""

    maximum_gap: float | None = None


@dataclass(frozen=True)
class CsvMapping:
    """A checked mapping from the columns of files to channels, vehicles and trips."""

    source: str
    time: TimeMap
    vehicle: NameOrigin
    trip: NameOrigin
    channels: Mapping[str, ChannelMap]
    kind: str = "passenger"
    labels: str = "measured"
    form: TextForm = COMMAS
    maximum_gap_s: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_energy(self) -> bool:
        """Return whether some set of channels gives energy."""
        return any(all(n in self.channels for n in names) for names in ENERGY_SOURCES)

    @property
    def charge_only(self) -> bool:
        """Return whether the state of charge is all that is known of the pack."""
        return "soc" in self.channels and not self.has_energy


def named_columns(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns that a table of a mapping names: one, several that belong together, or
    none.

    >>> named_columns({"column": "t"}), named_columns({"column": ["Date", "Time"]})
    (('t',), ('Date', 'Time'))
    """
    named = table.get("column", ())
    return (named,) if isinstance(named, str) else tuple(named)


def shipped_mappings() -> tuple[str, ...]:
    """Return the names of the mappings that come with the package."""
    files = [file.name for file in SHIPPED.iterdir() if file.name.endswith(".toml")]
    return tuple(sorted(name.removesuffix(".toml") for name in files))


def shipped_tables(name: str) -> dict[str, Any]:
    """Return the tables of a mapping that comes with the package."""
    return tomllib.loads((SHIPPED / f"{name}.toml").read_text(encoding="utf-8"))


def load_mapping(mapping: str | Path) -> CsvMapping:
    """Return the mapping in a TOML file, or the shipped one of this name."""
    if isinstance(mapping, str) and mapping in shipped_mappings():
        return mapping_of(shipped_tables(mapping), f"{mapping}.toml")
    path = Path(mapping)
    if not path.is_file():
        hint = f"It is neither a file nor one of {', '.join(shipped_mappings())}."
        raise SettingError(unknown("mapping", str(mapping), shipped_mappings(), hint))
    try:
        return parse_mapping(path.read_text(encoding="utf-8"), path.name)
    except UnicodeDecodeError as error:
        raise SettingError(f"{path.name} is not UTF-8 text. Save it as UTF-8.") from error


def parse_mapping(text: str, where: str) -> CsvMapping:
    """Check a mapping; `where` names its file in messages."""
    try:
        values = parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{where} is not valid TOML: {error}.") from error
    return mapping_of(values, where)


def mapping_of(values: Mapping[str, Any], where: str) -> CsvMapping:
    """Check the tables of a mapping; `where` names them in messages."""
    _choose(where, "key", values, KEYS)
    channels = _table(values, "channels", where)
    _choose(f"{where}, [channels]", "key", channels, MAPPABLE)
    file = _read(TextForm, {"file": {}, **values}, "file", where)
    mapping = CsvMapping(
        source=str(values.get("name", where.removesuffix(".toml"))),
        time=_read(TimeMap, values, "time", where),
        vehicle=_origin(values, "vehicle", ("column", "name", "from"), where),
        trip=_origin(values, "trip", ("column", "from"), where),
        channels={name: _channel(channels, name, where) for name in channels},
        kind=str(values.get("kind", "passenger")),
        labels=str(values.get("labels", "measured")),
        form=file,
        maximum_gap_s=_read(GapLimit, {"cleaning": {}, **values}, "cleaning", where).maximum_gap,
        facts=_table({"facts": {}, **values}, "facts", where),
    )
    time = mapping.time
    _choose(where, "kind", [mapping.kind], KINDS)
    _choose(where, "labels", [mapping.labels], LABELS)
    _choose(f"{where}, [time]", "unit", [time.unit], (*TIME, "iso"))
    _choose(f"{where}, [file]", "decimal", [file.decimal], (".", ","))
    _require(
        len(time.column) == 1 or time.unit == "iso",
        f'{where}, [time]: several columns are dates and times as text: unit = "iso".',
    )
    _require(
        "speed_mps" in mapping.channels,
        f"{where}, [channels]: speed_mps is missing; every trip needs a speed.",
    )
    _require(
        len(file.separator) == 1,
        f"{where}, [file]: separator must be one character, not {file.separator!r}.",
    )
    for table, seconds in (("trip", mapping.trip.pause), ("cleaning", mapping.maximum_gap_s or 1)):
        _require(seconds > 0, f"{where}, [{table}]: must be a number of seconds above 0.")
    return mapping


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SettingError(otherwise)


def _choose(where: str, key: str, values: Iterable[str], allowed: Sequence[str]) -> None:
    """Refuse values that are not among those allowed."""
    for value in values:
        _require(value in allowed, f"{where}: {unknown(key, str(value), allowed)}")


def _table(values: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """Return the table `key`, which must be there."""
    table = values.get(key)
    if not isinstance(table, dict):
        raise SettingError(f"{where} has no table [{key}]. 'fedwatt data map FILE' proposes one.")
    return table


def _read(kind: type[T], values: Mapping[str, Any], key: str, where: str) -> T:
    """Return the table `key` as a dataclass; one text stands for a list of one."""
    table = dict(_table(values, key, where))
    where = f"{where}, [{key}]"
    for declared in fields(kind):  # type: ignore[arg-type]
        if declared.type != tuple[str, ...]:
            continue
        entry = table.get(declared.name, [])
        entries = entry if isinstance(entry, list) else [entry]
        _require(
            all(isinstance(name, str) and name for name in entries)
            and (bool(entries) or declared.name == "aliases"),
            f"{where}: {declared.name} must be a column's name, or a list of them.",
        )
        table[declared.name] = entries
    return from_table(kind, table, where)


def _channel(channels: Mapping[str, Any], name: str, where: str) -> ChannelMap:
    """Return a channel of the table [channels]."""
    table = {"unit": "", **_table(channels, name, f"{where}, [channels]")}
    channel = _read(ChannelMap, {f"channels.{name}": table}, f"channels.{name}", where)
    where = f"{where}, [channels.{name}]"
    _choose(where, "unit", [channel.unit], tuple(CHANNELS[name].units))
    _choose(where, "discharge", [channel.discharge], ("positive", "negative"))
    _require(
        len(channel.column) == 1 or not channel.aliases,
        f"{where}: aliases are for a single column. Leave them out.",
    )
    _require(
        name in SIGNED or "discharge" not in table,
        f"{where}: discharge is only for {', '.join(SIGNED)}. Leave it out.",
    )
    _require(channel.factor != 0, f"{where}: factor must be a number other than 0.")
    return channel


def _origin(values: Mapping[str, Any], key: str, ways: Sequence[str], where: str) -> NameOrigin:
    """Return the origin of the names of vehicles or trips, which a mapping gives in one way."""
    table = dict(_table(values, key, where))
    where = f"{where}, [{key}]"
    _require(
        sum(way in table for way in ways) == 1,
        f"{where} must hold exactly one of {' or '.join(ways)}.",
    )
    if "from" in table:
        sources = ("file", "folder" if key == "vehicle" else "gaps")
        _choose(where, "from", [table["from"]], sources)
        table["source"] = table.pop("from")
    origin = from_table(NameOrigin, table, where)
    try:
        groups = re.compile(origin.pattern).groups
    except re.error as error:
        raise SettingError(
            f"{where}: pattern {origin.pattern!r} is no regular expression: {error}."
        ) from error
    _require(
        not origin.pattern or (groups > 0 and bool(origin.column or origin.source == "file")),
        f'{where}: pattern needs a column or from = "file", and a group in brackets, the name.',
    )
    return origin
