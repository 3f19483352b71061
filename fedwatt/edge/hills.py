"""Climb on board: the elevation field in a model's file, and what a trip reads from it.

The field travels as text in the file's metadata: node keys as differences, elevations in float32
(exact to 0.01 mm) and regions, compressed. Climb is read by `fedwatt.terrain.climb`, as in
training, so its policy for missing and wrong positions holds in the vehicle, too. Needs numpy only.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np

from fedwatt.data.channels import POSITION
from fedwatt.data.features import CLIMB
from fedwatt.data.trip import Trip
from fedwatt.errors import DataError
from fedwatt.terrain.climb import climbing, measured_rise_m, trip_rise_m
from fedwatt.terrain.field import Field
from fedwatt.terrain.grid import Grid
from fedwatt.terrain.positions import AROUND_LEAP_S

KEY = "fedwatt.field"
# Where climb comes from, and the channels of telemetry that it is read from.
SOURCES = {"field": POSITION, "elevation": ("elevation_m",)}
# A leap of the position takes the trust from seconds before it.
LOOK_AHEAD_S = AROUND_LEAP_S + 1
# How far back a gap may have begun and still be closed; a longer one stays unknown.
MEMORY_S = 600


def field_to_text(field: Field) -> tuple[str, dict[str, Any]]:
    """The field as text for a file's metadata, and the entry about it for the model's card."""
    content = b"".join(
        np.ascontiguousarray(part, dtype=kind).tobytes()
        for part, kind in (
            (np.diff(field.keys, prepend=0), "<i8"),
            (field.elevation_m, "<f4"),
            (field.region, "<i4"),
        )
    )
    about = {
        "source": "field",
        "nodes": field.nodes,
        "cell_m": field.grid.cell_m,
        "hash": blake2b(content, digest_size=8).hexdigest(),
    }
    return b64encode(zlib.compress(content, 9)).decode("ascii"), about


def field_from_text(text: str, about: Mapping[str, Any], where: str) -> Field:
    """The field that a model file holds; `where` is named if it is damaged."""
    try:
        content = zlib.decompress(b64decode(text, validate=True))
        if blake2b(content, digest_size=8).hexdigest() != about["hash"]:
            raise ValueError("its hash is another")
        nodes = int(about["nodes"])
        steps = np.frombuffer(content, "<i8", nodes)
        elevation_m = np.frombuffer(content, "<f4", nodes, 8 * nodes).astype(np.float64)
        region = np.frombuffer(content, "<i4", nodes, 12 * nodes).astype(np.int64)
        grid = Grid(cell_m=float(about["cell_m"]))
    except (ValueError, KeyError, TypeError, zlib.error) as problem:
        raise DataError(
            f"{where} has a damaged elevation field: {problem}. Export the model again."
        ) from problem
    # How often a node was passed, and by whom, matters where a field is learned, not on board.
    unknown = np.zeros(nodes)
    return Field(grid, np.cumsum(steps), elevation_m, region, unknown, unknown.astype(np.int64))


def climb_from(trip: Trip, source: str) -> str:
    """Where the trip's climb comes from: "positions", "climb", "elevation_m", "grade" or "nothing".

    >>> climb_from(Trip("7", {"speed_mps": np.ones(2), "grade": np.zeros(2)}), "field")
    'grade'
    """
    known = trip.channels
    if source == "field" and all(
        name in known and np.isfinite(known[name]).any() for name in POSITION
    ):
        return "positions"
    if all(name in known for name in CLIMB):
        return "climb"
    return next((name for name in ("elevation_m", "grade") if name in known), "nothing")


def with_climb(trip: Trip, source: str, field: Field | None) -> Trip:
    """The trip with climb and descent, which are 0 and marked unknown where it does not say."""
    origin = climb_from(trip, source)
    if origin == "climb":
        return _as_given(trip)
    if origin == "positions" and field is not None:
        return climbing(trip, trip_rise_m(trip, field))
    if origin == "elevation_m":
        return climbing(trip, measured_rise_m(trip))
    if origin == "grade":
        return climbing(trip, trip.channels["grade"] * trip.channels["speed_mps"])
    return climbing(trip, np.full(trip.seconds, np.nan))


def _as_given(trip: Trip) -> Trip:
    """The trip with its own climb and descent, known where both are numbers."""
    given = {name: trip.channels[name] for name in CLIMB}
    known = np.all([np.isfinite(values) for values in given.values()], axis=0)
    known &= trip.channels.get("climb_known", np.ones(trip.seconds)) > 0
    given = {name: np.where(known, values, 0.0) for name, values in given.items()}
    return replace(trip, channels={**trip.channels, **given, "climb_known": known.astype(float)})
