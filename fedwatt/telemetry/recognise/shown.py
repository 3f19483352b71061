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


def column_lines(found: Understanding) -> list[ColumnLine]:
    """One line for each column of the file, in its order."""
    tables = found.tables
    reasons = found.reasons
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
    shown = []
    for column in found.sample.columns:
        taken_as, unit, why = lines.get(column, ("", "", ""))
        if not taken_as and fit(column, "odometer"):
            taken_as = "odometer"
            why = "known, not needed"
        shown.append(ColumnLine(column, taken_as, unit, _readings(found.sample, column), why))
    return shown


def _readings(sample: TableSample, column: str) -> tuple[str, ...]:
    """Return readings from the beginning, the middle and the end of a column."""
    values = sample.rows[column].drop_nulls()
    places = np.linspace(0, len(values) - 1, min(READINGS, len(values))).astype(int)
    return tuple(str(values[int(place)]) for place in places)


def sentences(found: Understanding) -> list[str]:
    """Return sentences on the files, their vehicles, the row spacing and the bridged gap."""
    known = f" in the format of {found.tables['name']}" if found.format else ""
    told = [f"Files: {counted(len(found.paths), 'file')}{known}."]
    for key in ("vehicle", "trip"):
        how, text = next(iter(found.tables[key].items()))
        said = {"column": f"by column '{text}'", "name": f"all '{text}'"}
        told.append(
            f"{key.capitalize()}s: {said.get(how) or NAMES_FROM[text]} ({found.reasons[key]})."
        )
    gap = found.spacing.maximum_gap_s
    told.append(
        f"Interval: {found.spacing.sentence()}. Gaps up to {gap:g} s are bridged, longer ones cut "
        "a trip; --maximum-gap sets another limit."
    )
    counted_energy = {"energy_step_wh", "energy_total_wh"} & set(found.tables["channels"])
    if found.spacing.interval_s > ROUGH_S and not counted_energy:
        apart = f"{found.spacing.interval_s:.3g} s"
        told.append(
            f"Labels: with a reading of the pack only every {apart}, energy is a sum of samples "
            "that misses what happens in between. Expect large errors on short trips; a logger "
            "that counts energy itself would not have them."
        )
    return [*told, *found.remarks, *found.questions]


def refuse_incomplete(found: Understanding) -> None:
    """Refuse files in which no speed, or nothing of the pack, was recognised."""
    channels = found.tables["channels"]
    name = found.sample.path.name
    advice = (
        f"Its columns are {', '.join(found.sample.columns)}. 'fedwatt data map {found.paths[0]} "
        "--out map.toml' writes a mapping to complete, and 'fedwatt data import csv' reads with it."
    )
    if not found.sample.rows.height:
        raise DataError(f"No rows in {name}, only a header. Export the recording again.")
    if "speed_mps" not in channels:
        raise DataError(f"{name}: no column looks like the vehicle's speed in numbers. {advice}")
    if "soc" not in channels and not any(all(n in channels for n in s) for s in ENERGY_SOURCES):
        raise DataError(
            f"{name}: no column looks like energy. A fleet needs pack voltage and current, power, "
            f"energy or at least a state of charge. {advice}"
        )
