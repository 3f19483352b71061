"""Recorded driving without energy on disk: what electrified vehicles are made of.

FOLDER/traces.json       vehicles, their facts, and each trip's name, recording and seconds
FOLDER/traces.parquet    one float64 column a channel, trips one after the other
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedwatt.files import write_atomically, write_text
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.trip import UNLABELLED, Trip

CHANNELS: Final = ("speed_mps", "ambient_c", "ac_w", "heater_w")


def write_traces(folder: Path, vehicles: Sequence[Vehicle]) -> None:
    """Store vehicles without labels; traces.json comes last and makes them count."""
    trips = [trip for vehicle in vehicles for trip in vehicle.trips]
    table = pa.table(
        {
            name: np.concatenate([t.channels.get(name, np.full(t.seconds, np.nan)) for t in trips])
            for name in CHANNELS
        }
    )

    def write(path: Path) -> None:
        pq.write_table(table, path, compression="zstd", compression_level=19)

    write_atomically(folder / "traces.parquet", write)
    description = [
        {
            "name": vehicle.name,
            "facts": dict(vehicle.facts),
            "trips": [(trip.name, trip.recording, trip.seconds) for trip in vehicle.trips],
        }
        for vehicle in vehicles
    ]
    write_text(folder / "traces.json", json.dumps(description, ensure_ascii=False) + "\n")


def read_traces(folder: Path) -> list[Vehicle]:
    """Return the vehicles, as `write_traces` was given them."""
    table = pq.read_table(folder / "traces.parquet")
    columns = {name: table[name].to_numpy() for name in CHANNELS}
    vehicles = []
    start = 0
    for description in json.loads((folder / "traces.json").read_text(encoding="utf-8")):
        trips = []
        for name, recording, seconds in description["trips"]:
            channels = {c: values[start : start + seconds] for c, values in columns.items()}
            held = {c: values for c, values in channels.items() if not np.isnan(values).all()}
            trips.append(Trip(name, held, recording))
            start += seconds
        vehicles.append(
            Vehicle(
                description["name"], tuple(trips), labels=UNLABELLED, facts=description["facts"]
            )
        )
    return vehicles
