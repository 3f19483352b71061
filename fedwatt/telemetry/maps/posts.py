"""Heights from a file of points, such as the posts of SRTM around some streets.

A row has a latitude, a longitude and a height; points may be missing, but those that are there lie
on a regular lattice in degrees, as the posts of a terrain model do. Between posts heights are
bilinear, where posts with at least half of the weight are known.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from fedwatt.errors import DataError
from fedwatt.telemetry.maps.tile import Tile
from fedwatt.telemetry.trip import FloatArray, IntArray

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
    """Latitude, longitude and height of all rows."""
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
