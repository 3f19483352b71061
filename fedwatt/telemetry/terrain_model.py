"""Elevation and grade of positions, from a terrain model that the user brings.

SRTM tiles (.hgt: big-endian int16 metres, 1 or 3 arc seconds, void -32768, named after their
south-west corner) are read with numpy; GeoTIFF needs rasterio. A file of points has a latitude, a
longitude and a height per row; points may be missing, but lie on a regular lattice in degrees.
Heights are bilinear between posts, of points where at least half of the weight is known. Of tiles
and GeoTIFFs only what lies around a trip comes into memory. Grade is the slope of the elevation
over 100 m of road: over less, a terrain model of 30 m posts shows its noise.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from fedwatt.errors import DataError, optional
from fedwatt.telemetry.channels import CHANNELS, POSITION
from fedwatt.telemetry.readers.files import as_paths
from fedwatt.telemetry.trip import FloatArray, IntArray, Trip, Vehicle


@dataclass(frozen=True, eq=False)
class Tile:
    """Heights on a regular grid [rows, columns], first row north, first column west.

    `heights_m` is an array, or a file that is read like one. `north_deg` and `west_deg` are the
    position of the first post; steps are positive degrees. Heights equal to `void` are unknown. A
    position is known if the corners that are known have more than `least_weight` of 1.
    """

    heights_m: Any
    north_deg: float
    west_deg: float
    latitude_step_deg: float
    longitude_step_deg: float
    void: float = np.nan
    least_weight: float = 1e-9

    def elevation_m(self, latitude_deg: FloatArray, longitude_deg: FloatArray) -> FloatArray:
        """Return the bilinear height, without void corners; NaN outside. [seconds]."""
        row = (self.north_deg - latitude_deg) / self.latitude_step_deg
        column = (longitude_deg - self.west_deg) / self.longitude_step_deg
        rows, columns = self.heights_m.shape
        # A position on the last post is inside, whatever the last bit of the division says.
        slack = 1e-6
        inside = (row >= -slack) & (row <= rows - 1 + slack)
        inside &= (column >= -slack) & (column <= columns - 1 + slack)
        elevations = np.full(len(row), np.nan)
        if not inside.any():
            return elevations
        row, column = np.clip(row[inside], 0, rows - 1), np.clip(column[inside], 0, columns - 1)
        top = np.minimum(row.astype(int), rows - 2)
        left = np.minimum(column.astype(int), columns - 2)
        down = row - top
        right = column - left
        around = [top, top, top + 1, top + 1], [left, left + 1, left, left + 1]
        corners = np.asarray(self.heights_m[np.stack(around[0]), np.stack(around[1])], float)
        corners[corners == self.void] = np.nan
        up = 1 - down
        aside = 1 - right
        shares = np.stack([up * aside, up * right, down * aside, down * right])
        shares[~np.isfinite(corners)] = 0.0
        height = (shares * np.nan_to_num(corners)).sum(axis=0)
        weight = shares.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            elevations[inside] = np.where(weight > self.least_weight, height / weight, np.nan)
        return elevations


NAMES = {
    "latitude_deg": ("latitude_deg", "latitude", "lat", "y"),
    "longitude_deg": ("longitude_deg", "longitude", "lon", "lng", "x"),
    "elevation_m": ("elevation_m", "elevation", "height_m", "height", "altitude", "alt", "z"),
}
"""What a column may be called, capitals aside; the first that is there counts."""
LEAST_WEIGHT = 0.5
OFF_LATTICE = 0.05
"""Part of a step by which a point may miss its place: files round degrees to six digits."""
MOST_POSTS = 100_000_000
"""Places of the lattice between the outermost points, known or not."""


def read_posts(path: Path) -> Tile:
    """Return the points of a CSV or Parquet file as one tile of heights."""
    latitude_deg, longitude_deg, elevation_m = _columns(path)
    valid = np.isfinite(latitude_deg) & np.isfinite(longitude_deg) & np.isfinite(elevation_m)
    latitude_deg, longitude_deg, elevation_m = (
        values[valid] for values in (latitude_deg, longitude_deg, elevation_m)
    )
    if len(elevation_m) < 4:
        raise DataError(f"{path.name} has {len(elevation_m)} points with a height; 4 are needed.")
    if np.abs(latitude_deg).max() > 90 or np.abs(longitude_deg).max() > 180:
        raise DataError(
            f"{path.name} has latitudes beyond 90° or longitudes beyond 180°. Points are in "
            "degrees, WGS 84; are the two columns swapped, or is it a projected grid?"
        )
    row, latitude_step_deg = _places(path, -latitude_deg, "latitudes")
    column, longitude_step_deg = _places(path, longitude_deg, "longitudes")
    shape = int(row.max()) + 1, int(column.max()) + 1
    if min(shape) < 2 or shape[0] * shape[1] > MOST_POSTS:
        raise DataError(
            f"{path.name} spans a lattice of {shape[0]:,} by {shape[1]:,} posts; at least 2 by 2 "
            f"and at most {MOST_POSTS:,} in all can be read. Cut it to where the fleet drives."
        )
    heights_m = np.full(shape, np.nan, dtype=np.float32)
    heights_m[row, column] = elevation_m
    corner_deg = float(latitude_deg.max()), float(longitude_deg.min())
    steps_deg = latitude_step_deg, longitude_step_deg
    return Tile(heights_m, *corner_deg, *steps_deg, least_weight=LEAST_WEIGHT)


def _columns(path: Path) -> list[FloatArray]:
    """Return latitude, longitude and height of all rows."""
    try:
        table = pq.read_table(path) if path.suffix.lower() == ".parquet" else pc.read_csv(path)
        spellings = {name.strip().lower(): name for name in table.column_names}
        columns = []
        for channel, names in NAMES.items():
            name = next((spellings[spelling] for spelling in names if spelling in spellings), None)
            if name is None:
                raise DataError(
                    f"{path.name} has no column '{channel}' (nor {', '.join(names[1:])}). A file "
                    "of points has a latitude, a longitude and a height in each row."
                )
            values = table[name].cast(pa.float64()).to_numpy(zero_copy_only=False)
            columns.append(np.asarray(values, dtype=np.float64))
        return columns
    except (OSError, pa.ArrowException) as problem:
        reason = str(problem).splitlines()[0].rstrip(".")
        raise DataError(f"{path.name} is not a file of points: {reason}.") from problem


def _places(path: Path, degrees: FloatArray, what: str) -> tuple[IntArray, float]:
    """Return number of each point along one axis of the lattice, from 0, and the step in
    degrees.
    """
    offset = degrees - degrees.min()
    apart = np.diff(np.unique(np.round(offset, 7)))
    if not len(apart):
        raise DataError(f"{path.name}: all points have one of {what}. A lattice has at least two.")
    # The smallest distance is rounded like the rest; all of them together know the step better.
    step = float(offset.max() / np.round(apart / apart.min()).sum())
    place = np.round(offset / step)
    if np.abs(offset - place * step).max() > OFF_LATTICE * step:
        raise DataError(
            f"{path.name}: the {what} of its points are no multiples of one step ({step:.6f}°). "
            "Put scattered points on a lattice first, for example with gdal_grid, and give the "
            "GeoTIFF."
        )
    return place.astype(np.int64), step


VOID = -32768
GRADE_SPAN_M = 100.0
SRTM_NAME = re.compile(r"^([NS])(\d{2})([EW])(\d{3})", re.IGNORECASE)
SRTM_POSTS = (1201, 3601)


class Terrain(Protocol):
    """A source of heights: a tile, or several."""

    def elevation_m(self, latitude_deg: FloatArray, longitude_deg: FloatArray) -> FloatArray:
        """Return the height at each position, NaN where unknown. [seconds]."""


@dataclass(frozen=True)
class RasterHeights:
    """Heights of a GeoTIFF, of which only the window asked for is read."""

    path: Path
    shape: tuple[int, int]

    def __getitem__(self, place: tuple[IntArray, IntArray]) -> FloatArray:
        """Return heights at rows and columns, NaN where unknown; in the shape of `place`."""
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
        """Return the height at each position, NaN where no tile has it. [seconds]."""
        heights = np.full(len(latitude_deg), np.nan)
        for tile in self.tiles:
            unknown = np.isnan(heights)
            if not unknown.any():
                break
            heights[unknown] = tile.elevation_m(latitude_deg[unknown], longitude_deg[unknown])
        return heights


def read_terrain_model(paths: Iterable[str | Path]) -> Tiles:
    """Read .hgt and GeoTIFF files, files of points (.csv, .parquet), or folders of them."""
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
    grade = road_grade(bridged_m, trip.channels["speed_mps"])
    return replace(trip, channels={**trip.channels, "elevation_m": raw_m, "grade": grade})


def road_grade(elevation_m: FloatArray, step_m: FloatArray) -> FloatArray:
    """Return rise over run across `GRADE_SPAN_M` of road around each sample, + uphill. [samples].

    `step_m` is the way driven in each sample.

    >>> road_grade(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.full(5, 20.0))
    array([0.05, 0.05, 0.05, 0.05, 0.05])
    """
    distance_m = np.cumsum(step_m) - step_m[0]
    # One post a place: a car that stands still must not add wiggles of its receiver to the road.
    moved = np.flatnonzero(np.r_[True, np.diff(distance_m) > 0])
    road_m = distance_m[moved]
    height_m = elevation_m[moved]
    back = np.maximum(distance_m - GRADE_SPAN_M / 2, road_m[0])
    ahead = np.minimum(distance_m + GRADE_SPAN_M / 2, road_m[-1])
    run_m = ahead - back
    rise_m = np.interp(ahead, road_m, height_m) - np.interp(back, road_m, height_m)
    limits = CHANNELS["grade"]
    slope = np.divide(rise_m, run_m, out=np.zeros(len(run_m)), where=run_m > 1.0)
    return np.asarray(np.clip(slope, limits.low, limits.high))


class Enrichment:
    """Adds the elevation of a terrain model to the vehicles of an import, and counts their trips.

    Trips without positions, or outside the model, stay as they are.
    """

    def __init__(self, terrain: Terrain) -> None:
        self._terrain = terrain
        self._trips = Counter[str]()

    def enriched(self, vehicles: Iterable[Vehicle]) -> Iterator[Vehicle]:
        """Yield the vehicles with elevation and grade where the model has them."""
        for recorded in vehicles:
            vehicle = with_elevation(recorded, self._terrain)
            covered = sum("grade" in trip.channels for trip in vehicle.trips)
            positioned = sum(set(POSITION) <= set(trip.channels) for trip in vehicle.trips)
            self._trips.update(all=len(vehicle.trips), positioned=positioned, covered=covered)
            yield vehicle
        self._refuse_if_useless()

    def sentences(self) -> list[str]:
        """Return a sentence on what was added so far."""
        counts = self._trips
        return [f"Terrain: {counts['covered']:,} of {counts['all']:,} trips have a grade."]

    def _refuse_if_useless(self) -> None:
        counts = self._trips
        if counts["covered"] or not counts["all"]:
            return
        if counts["positioned"]:
            raise DataError(
                f"The terrain model covers none of the {counts['positioned']:,} trips with "
                "positions. Get tiles of that region."
            )
        raise DataError(
            f"None of the {counts['all']:,} trips has positions, which a terrain model needs. "
            "Import their latitude and longitude, or import without --dem."
        )
