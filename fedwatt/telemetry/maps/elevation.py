"""Give telemetry with positions an elevation and a grade, from a terrain model the user brings.

SRTM tiles (.hgt: big-endian int16 metres, 1 or 3 arc seconds, void -32768, named after their
south-west corner) are read with numpy, files of points as `posts` says; GeoTIFF needs rasterio.
Heights are bilinear between posts. Of tiles and GeoTIFFs only what lies around a trip comes into
memory. Grade is the slope of the elevation over the road, taken across 100 m: shorter than that, a
terrain model of 30 m posts shows its noise.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedwatt.errors import DataError, optional
from fedwatt.telemetry.channels import CHANNELS, POSITION
from fedwatt.telemetry.maps.posts import read_posts
from fedwatt.telemetry.maps.tile import Tile
from fedwatt.telemetry.readers.find_files import as_paths
from fedwatt.telemetry.trip import FloatArray, IntArray, Trip, Vehicle

VOID = -32768
GRADE_SPAN_M = 100.0
SRTM_NAME = re.compile(r"^([NS])(\d{2})([EW])(\d{3})", re.IGNORECASE)
SRTM_POSTS = (1201, 3601)


class Terrain(Protocol):
    """Anything that knows heights."""

    def elevation_m(self, latitude_deg: FloatArray, longitude_deg: FloatArray) -> FloatArray:
        """Height at each position, NaN where unknown. [seconds]."""


@dataclass(frozen=True)
class RasterHeights:
    """Heights of a GeoTIFF, of which only the window asked for is read."""

    path: Path
    shape: tuple[int, int]

    def __getitem__(self, place: tuple[IntArray, IntArray]) -> FloatArray:
        """Heights at these rows and columns, NaN where unknown; in the shape of `place`."""
        rows, columns = place
        rasterio = _rasterio(self.path)
        top = int(rows.min())
        left = int(columns.min())
        size = int(columns.max()) - left + 1, int(rows.max()) - top + 1
        with _readable(rasterio, self.path), rasterio.open(self.path) as file:
            window = rasterio.windows.Window(left, top, *size)
            heights = file.read(1, window=window, masked=True).astype(float).filled(np.nan)
        return np.asarray(heights[rows - top, columns - left])


@dataclass(frozen=True, eq=False)
class Tiles:
    """Several tiles as one terrain; the first that knows a position answers."""

    tiles: Sequence[Terrain]

    def elevation_m(self, latitude_deg: FloatArray, longitude_deg: FloatArray) -> FloatArray:
        """Height at each position, NaN where no tile knows it. [seconds]."""
        heights = np.full(len(latitude_deg), np.nan)
        for tile in self.tiles:
            unknown = np.isnan(heights)
            if not unknown.any():
                break
            heights[unknown] = tile.elevation_m(latitude_deg[unknown], longitude_deg[unknown])
        return heights


def read_terrain_model(paths: Iterable[str | Path]) -> Tiles:
    """Terrain from .hgt and GeoTIFF files, files of points (.csv, .parquet), or folders of them."""
    files: list[Path] = []
    for path in as_paths(paths):
        if path.is_dir():
            files += [f for f in sorted(path.rglob("*")) if f.suffix.lower() in READERS]
        else:
            files.append(path)
    if not files:
        raise DataError("No terrain model is given. Name .hgt, .tif or .csv files, or a folder.")
    for path in files:
        if not path.is_file():
            raise DataError(f"{path} does not exist.")
        if path.suffix.lower() not in READERS:
            raise DataError(f"{path.name}: a terrain model is one of {', '.join(READERS)}.")
    return Tiles([READERS[path.suffix.lower()](path) for path in files])


def read_hgt(path: Path) -> Tile:
    """Return an SRTM tile; its position is in its name, such as N42W084.hgt."""
    name = SRTM_NAME.match(path.name)
    if name is None:
        raise DataError(
            f"{path.name}: an SRTM tile is named after its corner, such as N42W084.hgt. Rename it."
        )
    south = int(name[2]) * (1 if name[1].upper() == "N" else -1)
    west = int(name[4]) * (1 if name[3].upper() == "E" else -1)
    posts = round((path.stat().st_size / 2) ** 0.5)
    if posts not in SRTM_POSTS or 2 * posts * posts != path.stat().st_size:
        sizes = " or ".join(f"{2 * side * side:,}" for side in SRTM_POSTS)
        raise DataError(
            f"{path.name} has {path.stat().st_size:,} bytes; an SRTM tile has {sizes}. "
            "Download it again."
        )
    heights = np.memmap(path, dtype=">i2", mode="r", shape=(posts, posts))
    step = 1 / (posts - 1)
    return Tile(heights, south + 1.0, float(west), step, step, void=VOID)


def read_geotiff(path: Path) -> Tile:
    """Return a GeoTIFF in geographic coordinates (WGS 84), north up."""
    rasterio = _rasterio(path)
    with _readable(rasterio, path), rasterio.open(path) as file:
        place = file.transform
        geographic = file.crs is None or file.crs.is_geographic
        rows, columns = file.shape
    if not geographic or place.b or place.d or place.e > 0 or min(rows, columns) < 2:
        raise DataError(
            f"{path.name} is not north-up in degrees. "
            "Reproject it: gdalwarp -t_srs EPSG:4326 IN OUT."
        )
    # The transform gives the corner of the first cell; heights belong to its middle.
    north = place.f + place.e / 2
    west = place.c + place.a / 2
    return Tile(RasterHeights(path, (rows, columns)), north, west, -place.e, place.a)


def _rasterio(path: Path) -> Any:
    extra = "GeoTIFF needs rasterio: pip install 'fedwatt[elevation]'."
    return optional("rasterio", f"{path.name}: {extra} SRTM .hgt tiles need nothing more.")


@contextmanager
def _readable(rasterio: Any, path: Path) -> Iterator[None]:
    try:
        yield
    except rasterio.errors.RasterioError as error:
        raise DataError(f"{path.name} is not a readable GeoTIFF ({error}).") from error


READERS = {
    ".hgt": read_hgt,
    ".tif": read_geotiff,
    ".tiff": read_geotiff,
    ".csv": read_posts,
    ".parquet": read_posts,
}


def with_elevation(vehicle: Vehicle, terrain: Terrain) -> Vehicle:
    """Return the vehicle with `elevation_m` and `grade` in every trip that the terrain covers."""
    trips = tuple(add_elevation(trip, terrain) for trip in vehicle.trips)
    covered = sum("grade" in trip.channels for trip in trips)
    return replace(vehicle, trips=trips, facts={**vehicle.facts, "trips_with_elevation": covered})


def add_elevation(trip: Trip, terrain: Terrain) -> Trip:
    """Return the trip with elevation and grade; unchanged where it has no position or no known
    height.
    """
    if any(name not in trip.channels for name in POSITION):
        return trip
    raw_m = terrain.elevation_m(*(trip.channels[name] for name in POSITION))
    rows = np.flatnonzero(np.isfinite(raw_m))
    if len(rows) < 2:
        return trip
    # A feature must have no holes, so grade goes on from what is known; elevation says what it is.
    bridged_m = np.interp(np.arange(len(raw_m)), rows, raw_m[rows])
    grade = road_grade(bridged_m, trip.channels["speed_mps"] * trip.interval_s)
    return replace(trip, channels={**trip.channels, "elevation_m": raw_m, "grade": grade})


def road_grade(
    elevation_m: FloatArray, step_m: FloatArray, span_m: float = GRADE_SPAN_M
) -> FloatArray:
    """Rise over run across `span_m` of road around each sample, + uphill. [samples].

    `step_m` is the way driven in each sample.

    >>> road_grade(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.full(5, 20.0), span_m=40.0)
    array([0.05, 0.05, 0.05, 0.05, 0.05])
    """
    distance_m = np.cumsum(step_m) - step_m[0]
    # One post a place: a car that stands still must not add wiggles of its receiver to the road.
    moved = np.flatnonzero(np.r_[True, np.diff(distance_m) > 0])
    road_m = distance_m[moved]
    height_m = elevation_m[moved]
    back = np.maximum(distance_m - span_m / 2, road_m[0])
    ahead = np.minimum(distance_m + span_m / 2, road_m[-1])
    run_m = ahead - back
    rise_m = np.interp(ahead, road_m, height_m) - np.interp(back, road_m, height_m)
    limits = CHANNELS["grade"]
    slope = np.divide(rise_m, run_m, out=np.zeros(len(run_m)), where=run_m > 1.0)
    return np.asarray(np.clip(slope, limits.low, limits.high))
