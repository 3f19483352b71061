"""A field outside of its own file: as arrays of a message, and as text in a model file.

Neither says how often a node was passed, or by how many vehicles: that matters where a field is
learned, not where it is read. Needs numpy only.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.elevation.elevation_map import Field, Prior, bare_field
from fedwatt.elevation.grid import Grid
from fedwatt.errors import DataError
from fedwatt.files import inflate

FIELD_KEY = "fedwatt.field"  # name of the text in a model file's metadata
PREFIX = "field."  # of the names of a field's arrays in a message
PRIOR = "prior"
LONGEST_SEGMENT_S = 600
NODE_BYTES = 16
"""Bytes of a node in a model file: key 8, elevation 4, region 4."""
MOST_NODES = 16_000_000
ARRAYS = {"keys": np.int64, "elevation_m": np.float64, "region": np.int64}


def field_to_arrays(field: Field, prefix: str = PREFIX) -> dict[str, NDArray[Any]]:
    """Nodes, elevations, regions and prior, named as in a message."""
    arrays: dict[str, NDArray[Any]] = {
        prefix + name: np.asarray(getattr(field, name), kind) for name, kind in ARRAYS.items()
    }
    return arrays | {prefix + PRIOR: np.array([field.prior.segment_s, field.prior.grade])}


def evaluated_prefix(number: int) -> str:
    """Of the names of the arrays of one of several fields in a message.

    >>> evaluated_prefix(0)
    'field 0.'
    """
    return f"field {number}."


def field_digest(field: Field) -> str:
    """32 hexadecimal digits by which two fields with the same arrays and grid are the same."""
    digest = sha256(np.float64(field.grid.cell_m).tobytes())
    for array in field_to_arrays(field).values():
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def field_from_arrays(
    arrays: Mapping[str, NDArray[Any]], grid: Grid, prefix: str = PREFIX
) -> Field:
    """Return the field that a message holds; DataError if it holds none."""
    keys, elevation_m, region = (
        array_of(arrays, prefix + name, kind) for name, kind in ARRAYS.items()
    )
    prior = array_of(arrays, prefix + PRIOR, np.float64)
    same = len(keys) == len(elevation_m) == len(region) and len(prior) == 2
    if not same or not np.isfinite(elevation_m).all() or (np.diff(keys) <= 0).any():
        raise DataError("the question holds no field")
    if not (1 <= prior[0] <= LONGEST_SEGMENT_S and 0 < prior[1] < 1):
        raise DataError("the question holds a field by a prior that cannot be")
    field = bare_field(grid, keys, elevation_m, region)
    return replace(field, prior=Prior(int(prior[0]), float(prior[1])))


def array_of(arrays: Mapping[str, NDArray[Any]], name: str, kind: type) -> NDArray[Any]:
    """Return the vector `name` of a message; DataError if it is missing or of another type."""
    array = arrays.get(name)
    if array is None or array.dtype != kind or array.ndim != 1:
        raise DataError(f"the question lacks '{name}'")
    return array


def field_to_text(field: Field) -> tuple[str, dict[str, Any]]:
    """Return the field as text for a model file, and what the model's card says about it.

    Node keys are differences, elevations are float32 (exact to 0.01 mm); all of it is compressed.
    """
    steps = np.diff(field.keys, prepend=0)
    parts = (steps.astype("<i8"), field.elevation_m.astype("<f4"), field.region.astype("<i4"))
    content = b"".join(part.tobytes() for part in parts)
    about = {
        "source": "auto" if field.measured else "field",
        "nodes": field.nodes,
        "cell_m": field.grid.cell_m,
        "hash": blake2b(content, digest_size=8).hexdigest(),
    }
    return b64encode(zlib.compress(content, 9)).decode("ascii"), about


def field_from_text(text: str, about: Mapping[str, Any], where: str) -> Field:
    """Return the field that a model file holds; `where` is named if it is damaged."""
    try:
        nodes = int(about["nodes"])
        if not 0 <= nodes <= MOST_NODES:
            raise ValueError(f"{nodes:,} nodes are not between 0 and {MOST_NODES:,}")
        content = inflate(b64decode(text, validate=True), NODE_BYTES * nodes)
        if blake2b(content, digest_size=8).hexdigest() != about["hash"]:
            raise ValueError("its hash is another")
        steps = np.frombuffer(content, "<i8", nodes)
        elevation_m = np.frombuffer(content, "<f4", nodes, 8 * nodes).astype(np.float64)
        region = np.frombuffer(content, "<i4", nodes, 12 * nodes).astype(np.int64)
        grid = Grid(cell_m=float(about["cell_m"]))
    except (ValueError, KeyError, TypeError, zlib.error) as problem:
        raise DataError(
            f"{where} has a damaged elevation field: {problem}. Export the model again."
        ) from problem
    field = bare_field(grid, np.cumsum(steps), elevation_m, region)
    return replace(field, measured=about.get("source") == "auto")
