"""An elevation map: elevations at the nodes of a grid, and its forms in messages and model files.

A map is known up to a constant for each *region*, a connected set of driven nodes: energy tells
how much higher one place is than another, not how high. Differences across regions therefore mean
nothing, and `climb` never takes one.

In a message and in a model file a map does not say how often a node was passed, or by how many
vehicles: that matters where a map is learned, not where it is read. Needs numpy only.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.elevation.grid import Grid, find
from fedwatt.errors import DataError
from fedwatt.files import inflate
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray

NEGLIGIBLE_WEIGHT = 1e-9


@dataclass(frozen=True)
class Prior:
    """The prior a map was learned with: segments of so many seconds, slopes of about `grade`."""

    segment_s: int = 8
    grade: float = 0.03


@dataclass(frozen=True, eq=False)
class ElevationMap:
    """Elevations of `nodes` nodes, ascending by key.

    `region` numbers the connected pieces; `passes` is how many segments met a node (an estimate
    where shared), `vehicles` how many vehicles contributed to it. `prior` is what the fleet chose.
    A vehicle whose own map is `measured` reads its elevation channel first, and the map where
    that says nothing.
    """

    grid: Grid
    keys: IntArray
    elevation_m: FloatArray
    region: IntArray
    passes: FloatArray
    vehicles: IntArray
    prior: Prior = Prior()
    measured: bool = False

    @property
    def nodes(self) -> int:
        """Number of known nodes."""
        return len(self.keys)

    def only(self, chosen: BoolArray) -> "ElevationMap":
        """Return the nodes [nodes] that are chosen."""
        parts = ("keys", "elevation_m", "region", "passes", "vehicles")
        return replace(self, **{name: getattr(self, name)[chosen] for name in parts})

    def read(
        self, latitude_deg: FloatArray, longitude_deg: FloatArray
    ) -> tuple[FloatArray, IntArray]:
        """Return the elevation [seconds], NaN where it is not known, and the region, -1 there."""
        if not self.nodes:
            return np.full(len(latitude_deg), np.nan), np.full(len(latitude_deg), -1)
        finite = np.isfinite(latitude_deg) & np.isfinite(longitude_deg)
        corners, weights = self.grid.corners(
            np.where(finite, latitude_deg, 0.0), np.where(finite, longitude_deg, 0.0)
        )
        index, is_node = find(self.keys, corners)
        needed = weights > NEGLIGIBLE_WEIGHT
        regions = self.region[index[np.arange(len(index)), weights.argmax(axis=1)]]
        sure = finite & (is_node | ~needed).all(axis=1)
        elevation = np.where(needed, weights * self.elevation_m[index], 0.0).sum(axis=1)
        return np.where(sure, elevation, np.nan), np.where(sure, regions, -1)


def bare_map(grid: Grid, keys: IntArray, elevation_m: FloatArray, region: IntArray) -> ElevationMap:
    """Return a map that is only read: it does not say who passed its nodes, nor how often."""
    nobody = np.zeros(len(keys))
    return ElevationMap(grid, keys, elevation_m, region, nobody, nobody.astype(np.int64))


def empty_map(grid: Grid) -> ElevationMap:
    """Return a map without nodes."""
    nowhere = np.zeros(0, dtype=np.int64)
    return bare_map(grid, nowhere, np.zeros(0), nowhere)


MAP_KEY = "fedwatt.field"  # name of the text in a model file's metadata
PREFIX = "field."  # of the names of a map's arrays in a message
PRIOR = "prior"
LONGEST_SEGMENT_S = 600
NODE_BYTES = 16
"""Bytes of a node in a model file: key 8, elevation 4, region 4."""
MOST_NODES = 16_000_000
ARRAYS = {"keys": np.int64, "elevation_m": np.float64, "region": np.int64}


def map_to_arrays(elevation_map: ElevationMap, prefix: str = PREFIX) -> dict[str, NDArray[Any]]:
    """Return nodes, elevations, regions and prior, named as in a message."""
    arrays: dict[str, NDArray[Any]] = {
        prefix + name: np.asarray(getattr(elevation_map, name), kind)
        for name, kind in ARRAYS.items()
    }
    return arrays | {
        prefix + PRIOR: np.array([elevation_map.prior.segment_s, elevation_map.prior.grade])
    }


def evaluated_prefix(number: int) -> str:
    """Return the prefix of the arrays of one of several maps in a message.

    >>> evaluated_prefix(0)
    'map 0.'
    """
    return f"map {number}."


def map_digest(elevation_map: ElevationMap) -> str:
    """Return a digest of a map's arrays and grid, 32 hexadecimal digits."""
    digest = sha256(np.float64(elevation_map.grid.cell_m).tobytes())
    for array in map_to_arrays(elevation_map).values():
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def map_from_arrays(
    arrays: Mapping[str, NDArray[Any]], grid: Grid, prefix: str = PREFIX
) -> ElevationMap:
    """Return the map that a message holds; DataError if it holds none."""
    keys, elevation_m, region = (
        array_of(arrays, prefix + name, kind) for name, kind in ARRAYS.items()
    )
    prior = array_of(arrays, prefix + PRIOR, np.float64)
    same = len(keys) == len(elevation_m) == len(region) and len(prior) == 2
    if not same or not np.isfinite(elevation_m).all() or (np.diff(keys) <= 0).any():
        raise DataError("the request holds no elevation map")
    if not (1 <= prior[0] <= LONGEST_SEGMENT_S and 0 < prior[1] < 1):
        raise DataError("the request holds a map with an impossible prior")
    elevation_map = bare_map(grid, keys, elevation_m, region)
    return replace(elevation_map, prior=Prior(int(prior[0]), float(prior[1])))


def array_of(arrays: Mapping[str, NDArray[Any]], name: str, kind: type) -> NDArray[Any]:
    """Return the vector `name` of a message; DataError if it is missing or of another type."""
    array = arrays.get(name)
    if array is None or array.dtype != kind or array.ndim != 1:
        raise DataError(f"the request lacks '{name}'")
    return array


def map_to_text(elevation_map: ElevationMap) -> tuple[str, dict[str, Any]]:
    """Return the map as text for a model file, and what the model's card says about it.

    Node keys are differences, elevations are float32 (exact to 0.01 mm); all of it is compressed.
    """
    steps = np.diff(elevation_map.keys, prepend=0)
    parts = (
        steps.astype("<i8"),
        elevation_map.elevation_m.astype("<f4"),
        elevation_map.region.astype("<i4"),
    )
    content = b"".join(part.tobytes() for part in parts)
    notes = {
        "source": "auto" if elevation_map.measured else "field",
        "nodes": elevation_map.nodes,
        "cell_m": elevation_map.grid.cell_m,
        "hash": blake2b(content, digest_size=8).hexdigest(),
    }
    return b64encode(zlib.compress(content, 9)).decode("ascii"), notes


def map_from_text(text: str, notes: Mapping[str, Any], where: str) -> ElevationMap:
    """Return the map that a model file holds; `where` is named if it is damaged."""
    try:
        nodes = int(notes["nodes"])
        if not 0 <= nodes <= MOST_NODES:
            raise ValueError(f"{nodes:,} nodes are not between 0 and {MOST_NODES:,}")
        content = inflate(b64decode(text, validate=True), NODE_BYTES * nodes)
        if blake2b(content, digest_size=8).hexdigest() != notes["hash"]:
            raise ValueError("its hash is another")
        steps = np.frombuffer(content, "<i8", nodes)
        elevation_m = np.frombuffer(content, "<f4", nodes, 8 * nodes).astype(np.float64)
        region = np.frombuffer(content, "<i4", nodes, 12 * nodes).astype(np.int64)
        grid = Grid(cell_m=float(notes["cell_m"]))
    except (ValueError, KeyError, TypeError, zlib.error) as problem:
        raise DataError(
            f"{where} has a damaged elevation map: {problem}. Export the model again."
        ) from problem
    elevation_map = bare_map(grid, np.cumsum(steps), elevation_m, region)
    return replace(elevation_map, measured=notes.get("source") == "auto")
