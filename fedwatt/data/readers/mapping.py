"""A small TOML file that says what the columns of any CSV or Parquet telemetry mean.

    [time]
    column = "t"
    unit = "s"                  # s, ms, us, min, h; "iso" for dates and times as text
    [vehicle]
    column = "car"              # or name = "bus-7", or from = "file" or "folder"
    [trip]
    from = "file"               # one file a trip; or column = "trip"
    [channels.speed_mps]
    column = "v"
    unit = "km/h"
    [channels.current_a]
    column = "I"
    unit = "A"
    discharge = "negative"      # the sign of the number while the pack gives energy

Energy comes from voltage_v and current_a, from power_w, from energy_step_wh (since the row before)
or from energy_total_wh (a counter). Optional tables: [file] for the layout, [facts] for remarks.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from fedwatt.data.channels import CHANNELS, ENERGY_SOURCES, MAPPABLE
from fedwatt.data.trip import KINDS, LABELS
from fedwatt.errors import SettingError, unknown

# Seconds in a unit of time.
TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "h": 3600.0}
SIGNED = tuple(name for name, channel in CHANNELS.items() if channel.discharges)
# Channels that a mapping may resample by another rule; of power_w it is how energy is integrated.
FREE_RULE = tuple(
    name
    for name, channel in CHANNELS.items()
    if (channel.rule in ("held", "linear") and channel.role != "position") or name == "power_w"
)
_KEYS: dict[str, tuple[str, ...]] = {
    "": ("name", "kind", "labels", "file", "time", "vehicle", "trip", "channels", "facts"),
    "file": ("separator", "decimal", "skip_rows", "units_row"),
    "time": ("column", "unit", "format"),
    "vehicle": ("column", "name", "from"),
    "trip": ("column", "from"),
    "channels": MAPPABLE,
    "channel": ("column", "aliases", "unit", "discharge", "rule", "optional"),
}


@dataclass(frozen=True)
class ChannelMap:
    """Column (or columns of a vector, whose length counts), unit, sign and rule of one channel."""

    columns: tuple[str, ...]
    unit: str
    aliases: tuple[str, ...] = ()
    discharge: str = "positive"
    rule: str = ""
    optional: bool = False


@dataclass(frozen=True)
class CsvMapping:
    """A mapping, checked. `vehicle` and `trip` are ("column" | "name" | "from", text)."""

    source: str
    time_column: str
    time_unit: str
    time_format: str
    vehicle: tuple[str, str]
    trip: tuple[str, str]
    channels: Mapping[str, ChannelMap]
    kind: str = "passenger"
    labels: str = "measured"
    separator: str = ","
    decimal_comma: bool = False
    skip_rows: int = 0
    units_row: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_energy(self) -> bool:
        """Whether some set of channels gives energy."""
        return any(all(n in self.channels for n in names) for names in ENERGY_SOURCES)


def shipped_mappings() -> tuple[str, ...]:
    """Names of the mappings that come with the package."""
    folder = resources.files("fedwatt.data.readers") / "mappings"
    return tuple(
        sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith("toml"))
    )


def load_mapping(mapping: str | Path) -> CsvMapping:
    """The mapping in a TOML file, or the shipped one of this name."""
    if isinstance(mapping, str) and mapping in shipped_mappings():
        text = (resources.files("fedwatt.data.readers") / "mappings" / f"{mapping}.toml").read_text(
            encoding="utf-8"
        )
        return parse_mapping(text, f"{mapping}.toml")
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
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{where} is not valid TOML: {error}.") from error
    _known(tree, "", where, "the top level")
    file = _table(tree, "file", where)
    time = _table(tree, "time", where, required=True)
    channels = _table(tree, "channels", where, required=True)
    unit = _choice(time, "unit", (*TIME, "iso"), where, "time", "s")
    decimal = _choice(file, "decimal", (".", ","), where, "file", ".")
    mapping = CsvMapping(
        source=str(tree.get("name", where.removesuffix(".toml"))),
        time_column=_text(time, "column", where, "time"),
        time_unit=unit,
        time_format=str(time.get("format", "")),
        vehicle=_origin(tree, "vehicle", ("file", "folder"), where),
        trip=_origin(tree, "trip", ("file",), where),
        channels={name: _channel(name, channels[name], where) for name in channels},
        kind=_choice(tree, "kind", KINDS, where, "", "passenger"),
        labels=_choice(tree, "labels", LABELS, where, "", "measured"),
        separator=str(file.get("separator", ",")),
        decimal_comma=decimal == ",",
        skip_rows=int(file.get("skip_rows", 0)),
        units_row=bool(file.get("units_row", False)),
        facts=_table(tree, "facts", where, free=True),
    )
    if "speed_mps" not in mapping.channels:
        raise SettingError(f"{where}, [channels]: speed_mps is missing; every trip needs a speed.")
    if len(mapping.separator) != 1:
        raise SettingError(
            f"{where}, [file]: separator must be one character, not {mapping.separator!r}."
        )
    return mapping


def _channel(name: str, table: Any, where: str) -> ChannelMap:
    place = f"channels.{name}"
    if not isinstance(table, dict):
        raise SettingError(f"{where}, [{place}] must be a table with column and unit.")
    _known(table, "channel", where, f"[{place}]")
    column = table.get("column")
    columns = (column,) if isinstance(column, str) else tuple(column or ())
    if not columns or not all(isinstance(text, str) for text in columns):
        raise SettingError(
            f"{where}, [{place}]: column must be a column's name, or a list of them."
        )
    if len(columns) > 1 and "aliases" in table:
        raise SettingError(f"{where}, [{place}]: aliases are for a single column. Leave them out.")
    unit = str(table.get("unit", ""))
    if unit not in CHANNELS[name].units:
        raise SettingError(f"{where}, [{place}]: {unknown('unit', unit, CHANNELS[name].units)}")
    if "discharge" in table and name not in SIGNED:
        raise SettingError(
            f"{where}, [{place}]: discharge is only for {', '.join(SIGNED)}. Leave it out."
        )
    if "rule" in table and name not in FREE_RULE:
        raise SettingError(
            f"{where}, [{place}]: rule can only be set for {', '.join(FREE_RULE)}. Leave it out."
        )
    return ChannelMap(
        columns=columns,
        unit=unit,
        aliases=tuple(table.get("aliases", ())),
        discharge=_choice(table, "discharge", ("positive", "negative"), where, place, "positive"),
        rule=_choice(table, "rule", ("held", "linear"), where, place, ""),
        optional=bool(table.get("optional", False)),
    )


def _origin(
    tree: Mapping[str, Any], key: str, sources: tuple[str, ...], where: str
) -> tuple[str, str]:
    table = _table(tree, key, where, required=True)
    if len(table) != 1:
        allowed = " or ".join(_KEYS[key])
        raise SettingError(f"{where}, [{key}] must hold exactly one of {allowed}.")
    how = next(iter(table))
    if how == "from":
        return how, _choice(table, "from", sources, where, key, "")
    return how, _text(table, how, where, key)


def _table(
    tree: Mapping[str, Any], key: str, where: str, *, required: bool = False, free: bool = False
) -> dict[str, Any]:
    table = tree.get(key)
    if table is None and not required:
        return {}
    if not isinstance(table, dict):
        raise SettingError(f"{where} has no table [{key}]. 'fedwatt data map FILE' proposes one.")
    if not free:
        _known(table, key, where, f"[{key}]")
    return table


def _known(table: Mapping[str, Any], kind: str, where: str, place: str) -> None:
    for key in table:
        if key not in _KEYS[kind]:
            raise SettingError(f"{where}, {place}: {unknown('key', key, _KEYS[kind])}")


def _choice(
    table: Mapping[str, Any],
    key: str,
    allowed: tuple[str, ...],
    where: str,
    place: str,
    default: str,
) -> str:
    value = table.get(key, default)
    if value not in allowed and not (value == default and key not in table):
        at = f"{where}, [{place}]" if place else where
        raise SettingError(f"{at}: {unknown(key, str(value), allowed)}")
    return str(value)


def _text(table: Mapping[str, Any], key: str, where: str, place: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise SettingError(f"{where}, [{place}]: {key} must be the name of a column.")
    return value
