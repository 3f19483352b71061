"""Files of a program that fedwatt has a mapping for, known by the columns of its `signature`."""

from collections.abc import Iterable, Mapping
from typing import Any

from fedwatt.telemetry.readers.mapping import named_columns, shipped_mappings, shipped_tables
from fedwatt.telemetry.readers.table_blocks import tidy

VED = {"daynum", "vehid", "trip", "timestamp(ms)", "hv battery current[a]"}


def known_format(columns: Iterable[str]) -> str:
    """Name of the shipped mapping whose signature is among the columns, or "".

    >>> known_format(["date", "car_id", "drive_id", "speed", "power", "battery_level",
    ...               "ideal_battery_range_km"])
    'teslamate'
    """
    present = {tidy(name) for name in columns}
    for name in shipped_mappings():
        signature = shipped_tables(name).get("signature", ())
        if signature and present.issuperset(map(tidy, signature)):
            return name
    return ""


def better_reader(columns: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence where a reader of its own knows more about these files than a mapping
    says.
    """
    if not {tidy(name) for name in columns}.issuperset(VED):
        return ()
    return (
        "These are VED's columns: 'fedwatt data import ved', or eved, knows its vehicles, units "
        "and days better.",
    )


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
