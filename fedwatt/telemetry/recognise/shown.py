"""Summary of a recognised recording: a line for each column, and sentences on the rest."""

from dataclasses import dataclass

import numpy as np

from fedwatt.errors import DataError, counted
from fedwatt.telemetry.channels import ENERGY_SOURCES
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
    """One line for each column of the file, in its order."""
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
        "a trip; --maximum-gap sets another limit."
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
