"""A reader of one's own: recordings that are in no form that a mapping can describe.

    fedwatt data import ./examples/reader.py:read DAY.json ... --out fleets/mine

Each file holds {"bus": NAME, "rides": [{"ride": NAME, "t": [...], "kmh": [...], "kw": [...]}]}.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from fedwatt.telemetry.importing import vehicles_from_frame
from fedwatt.telemetry.readers import VehicleStream


def read(paths: Sequence[Path], **how: object) -> VehicleStream:
    """Vehicles with cleaned trips; `how` holds the cleaning and the progress to report."""
    frame = pl.concat(list(_rides(paths)))
    columns = {"vehicle": "bus", "trip": "ride", "time": "t"}
    channels = {"speed": ("kmh", "km/h"), "power": ("kw", "kW")}
    return vehicles_from_frame(frame, columns, channels, description={"kind": "bus"}, **how)


def _rides(paths: Sequence[Path]) -> Iterator[pl.DataFrame]:
    for path in paths:
        day = json.loads(path.read_text(encoding="utf-8"))
        for ride in day["rides"]:
            yield pl.DataFrame(ride).with_columns(bus=pl.lit(day["bus"]))
