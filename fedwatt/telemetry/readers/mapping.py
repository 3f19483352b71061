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
    [vehicle] pattern           with from = "file": the group of this expression is the name
    [trip] pause                with from = "gaps": what ends a trip, in s (300)
    [channels.ID] factor        what numbers are multiplied by before their unit counts
    [cleaning] maximum_gap      longest gap to bridge, in s, unless the import says another
    [facts]                     remarks
    signature                   columns by which 'data import auto' knows files of this kind
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

from fedwatt.errors import SettingError, unknown
from fedwatt.files import parse_toml
from fedwatt.settings import from_table
from fedwatt.telemetry.channels import CHANNELS, ENERGY_SOURCES, MAPPABLE
from fedwatt.telemetry.readers.tables import COMMAS, TextForm
from fedwatt.telemetry.trip import KINDS, LABELS

SHIPPED = resources.files("fedwatt.telemetry.readers") / "mappings"
# Seconds in a unit of time.
TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "d": 86_400.0}
USUAL_PAUSE_S = 300.0
SIGNED = tuple(name for name, channel in CHANNELS.items() if channel.discharges)
_KEYS: dict[str, tuple[str, ...]] = {
    "": (
        *("name", "kind", "labels", "signature", "file", "time", "vehicle", "trip", "channels"),
        *("cleaning", "facts"),
    ),
    "file": tuple(key.name for key in fields(TextForm)),
    "time": ("column", "unit", "format"),
    "vehicle": ("column", "name", "from", "pattern"),
    "trip": ("column", "from", "pause"),
    "channels": MAPPABLE,
    "channel": ("column", "aliases", "unit", "factor", "discharge", "optional"),
    "cleaning": ("maximum_gap",),
}


@dataclass(frozen=True)
class ChannelMap:
    """Column (or columns of a vector, whose length counts), unit and sign of one channel."""

    columns: tuple[str, ...]
    unit: str
    aliases: tuple[str, ...] = ()
    discharge: str = "positive"
    optional: bool = False
    factor: float = 1.0


@dataclass(frozen=True)
class CsvMapping:
    """A mapping, checked. `vehicle` and `trip` are ("column" | "name" | "from", text).

    `maximum_gap_s` is None where the mapping leaves it to the import.
    """

    source: str
    time_columns: tuple[str, ...]
    time_unit: str
    time_format: str
    vehicle: tuple[str, str]
    trip: tuple[str, str]
    channels: Mapping[str, ChannelMap]
    kind: str = "passenger"
    labels: str = "measured"
    form: TextForm = COMMAS
    vehicle_pattern: str = ""
    pause_s: float = USUAL_PAUSE_S
    maximum_gap_s: float | None = None
    signature: tuple[str, ...] = ()
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
    top = _Table(values, where, _KEYS[""])
    file = top.table("file", optional=True)
    time = top.table("time")
    channels = top.table("channels")
    cleaning = top.table("cleaning", optional=True)
    vehicle = top.table("vehicle")
    trip = top.table("trip")
    mapping = CsvMapping(
        source=str(values.get("name", where.removesuffix(".toml"))),
        time_columns=time.names("column", least=1),
        time_unit=time.choice("unit", (*TIME, "iso"), "s"),
        time_format=str(time.values.get("format", "")),
        vehicle=_origin(vehicle, ("column", "name", "from"), ("file", "folder")),
        trip=_origin(trip, ("column", "from"), ("file", "gaps")),
        channels={name: _channel(name, channels) for name in channels.values},
        kind=top.choice("kind", KINDS, "passenger"),
        labels=top.choice("labels", LABELS, "measured"),
        form=from_table(TextForm, file.values, file.where),
        vehicle_pattern=_pattern(vehicle),
        pause_s=trip.seconds("pause") or USUAL_PAUSE_S,
        maximum_gap_s=cleaning.seconds("maximum_gap"),
        signature=top.names("signature"),
        facts=top.table("facts", optional=True).values,
    )
    if len(mapping.time_columns) > 1 and mapping.time_unit != "iso":
        time.refuse('several columns are dates and times as text: unit = "iso".')
    if "speed_mps" not in mapping.channels:
        channels.refuse("speed_mps is missing; every trip needs a speed.")
    file.choice("decimal", (".", ","), ".")
    if len(mapping.form.separator) != 1:
        file.refuse(f"separator must be one character, not {mapping.form.separator!r}.")
    return mapping


@dataclass(frozen=True)
class _Table:
    """A table of a mapping, which may hold only `keys` (any, if None); `where` is for messages."""

    values: Mapping[str, Any]
    where: str
    keys: tuple[str, ...] | None

    def __post_init__(self) -> None:
        for key in self.values:
            if self.keys is not None and key not in self.keys:
                self.refuse(unknown("key", key, self.keys))

    def refuse(self, why: str) -> NoReturn:
        raise SettingError(f"{self.where}: {why}")

    def table(self, key: str, *, optional: bool = False) -> "_Table":
        values = self.values.get(key, {} if optional else None)
        if not isinstance(values, dict):
            raise SettingError(
                f"{self.where} has no table [{key}]. 'fedwatt data map FILE' proposes one."
            )
        return _Table(values, f"{self.where}, [{key}]", _KEYS.get(key))

    def choice(self, key: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.values.get(key, default)
        if key in self.values and value not in allowed:
            self.refuse(unknown(key, str(value), allowed))
        return str(value)

    def number(self, key: str, allowed: str, holds: Callable[[float], bool]) -> float | None:
        """Return a number that holds, or None where it is not set; `allowed` is for messages."""
        value = self.values.get(key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and holds(value)):
            self.refuse(f"{key} must be {allowed}, not {value!r}.")
        return None if value is None else float(value)

    def seconds(self, key: str) -> float | None:
        return self.number(key, "a number of seconds above 0", lambda value: value > 0)

    def names(self, key: str, *, least: int = 0) -> tuple[str, ...]:
        """Return the column, or columns, that a key names."""
        value = self.values.get(key, [])
        names = tuple(value) if isinstance(value, list) else (value,)
        if len(names) < least or not all(isinstance(name, str) and name for name in names):
            self.refuse(f"{key} must be a column's name, or a list of them.")
        return names


def _channel(name: str, channels: _Table) -> ChannelMap:
    values = channels.values[name]
    where = channels.where.replace("]", f".{name}]")
    if not isinstance(values, dict):
        raise SettingError(f"{where} must be a table with column and unit.")
    table = _Table(values, where, _KEYS["channel"])
    columns = table.names("column", least=1)
    if len(columns) > 1 and "aliases" in values:
        table.refuse("aliases are for a single column. Leave them out.")
    unit = str(values.get("unit", ""))
    if unit not in CHANNELS[name].units:
        table.refuse(unknown("unit", unit, CHANNELS[name].units))
    if "discharge" in values and name not in SIGNED:
        table.refuse(f"discharge is only for {', '.join(SIGNED)}. Leave it out.")
    return ChannelMap(
        columns=columns,
        unit=unit,
        aliases=table.names("aliases"),
        discharge=table.choice("discharge", ("positive", "negative"), "positive"),
        optional=bool(values.get("optional", False)),
        factor=table.number("factor", "a number other than 0", bool) or 1.0,
    )


def _origin(table: _Table, ways: tuple[str, ...], sources: tuple[str, ...]) -> tuple[str, str]:
    """Return the origin of the names of vehicles or trips: the kind, and the column or source."""
    present = [way for way in ways if way in table.values]
    if len(present) != 1:
        raise SettingError(f"{table.where} must hold exactly one of {' or '.join(ways)}.")
    (how,) = present
    text = table.values[how]
    if how == "from":
        return how, table.choice(how, sources, "")
    if not isinstance(text, str) or not text:
        table.refuse(f"{how} must be a text in quotes, not {text!r}.")
    return how, text


def _pattern(vehicle: _Table) -> str:
    """Return the expression whose group is the vehicle's name in its file's; "" for all of it."""
    text = str(vehicle.values.get("pattern", ""))
    try:
        groups = re.compile(text).groups
    except re.error as error:
        vehicle.refuse(f"pattern {text!r} is no regular expression: {error}.")
    if text and (groups < 1 or vehicle.values.get("from") != "file"):
        vehicle.refuse('pattern needs from = "file" and a group in brackets, the name.')
    return text
