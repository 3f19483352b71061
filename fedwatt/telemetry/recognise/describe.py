"""Summary of a recognised recording: a line for each column, and sentences on the rest.

A mapping as TOML text, with the reason of every decision behind it, to check and edit.
"""

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedwatt.errors import DataError, counted
from fedwatt.telemetry.channels import CHANNELS, ENERGY_SOURCES, MAPPABLE
from fedwatt.telemetry.readers.mapping import named_columns
from fedwatt.telemetry.recognise.header_words import fit
from fedwatt.telemetry.recognise.table_sample import TableSample
from fedwatt.telemetry.recognise.understand import Understanding

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
        if not taken_as and fit(column, "odometer"):
            taken_as = "odometer"
            why = "known, not needed"
        column_rows.append(
            ColumnLine(column, taken_as, unit, _readings(understanding.sample, column), why)
        )
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
        f"'fedwatt data map {understanding.paths[0]} "
        "--out map.toml' writes a mapping to complete, and 'fedwatt data import csv' reads with it."
    )
    if not understanding.sample.rows.height:
        raise DataError(f"No rows in {name}, only a header. Export the recording again.")
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
    seen = (
        "headers and rows" if understanding.sample.rows.height else "headers alone: it has no rows"
    )
    lines = [
        f"# Proposed for {understanding.sample.path.name} from its {seen}. Check every line.",
        "",
    ]
    if understanding.format:
        lines = [
            f"# {tables['name']}: the mapping '{understanding.format}' that fedwatt has for it.",
            "",
        ]
    lines += [f"name = {_quoted(tables.get('name', understanding.sample.path.stem))}"]
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
    free = [name for name in MAPPABLE if name not in taken]
    meanings = {
        name: f"{CHANNELS[name].meaning}; {', '.join(CHANNELS[name].units)}" for name in free
    }
    lines = [f"# [channels.{name}]    {text}" for name, text in meanings.items()]
    return ["# Channels still free, each with the units it may have:", *lines] if free else []
