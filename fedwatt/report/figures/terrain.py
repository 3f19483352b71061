"""The learned hills: shaded relief with contours, and how often each place was driven."""

from typing import Final

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import LightSource, LogNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.interpolate import griddata
from scipy.spatial import cKDTree

from fedwatt.errors import DataError
from fedwatt.report.style import INK, WIDTH_IN, styled
from fedwatt.terrain import Field
from fedwatt.terrain.grid import EARTH_RADIUS_M

FloatArray = NDArray[np.float64]

REACH_CELLS: Final = 3.0
"""Ground farther from any known node than this stays blank."""
MOST_PIXELS: Final = 900
EXAGGERATION: Final = 6.0
MARGIN_CELLS: Final = 4


@styled
def terrain_figure(field: Field) -> Figure:
    """Largest region of a field: its hills on top, its passes below."""
    east_km, north_km, elevation_m, passes = _largest_region(field)
    height_m, extent = _raster(field, east_km, north_km, elevation_m)
    aspect = np.ptp(extent[2:]) / np.ptp(extent[:2])
    figure = Figure(figsize=(WIDTH_IN, 2 * WIDTH_IN * float(aspect) * 0.88 + 1.6))
    hills, driven = figure.subplots(2, 1)
    span = float(np.nanmax(height_m) - np.nanmin(height_m))
    light = LightSource(azdeg=315, altdeg=45)
    pixel_m = 1000 * (extent[1] - extent[0]) / height_m.shape[1]
    # The light needs heights everywhere; blank ground is made transparent afterwards.
    filled = np.where(np.isnan(height_m), np.nanmean(height_m), height_m)
    shaded = light.shade(
        filled,
        cmap=colormaps["terrain"],
        vert_exag=EXAGGERATION,
        dx=pixel_m,
        dy=pixel_m,
        blend_mode="soft",
        vmin=float(np.nanmin(height_m)) - 0.35 * span,
        vmax=float(np.nanmax(height_m)) + 0.15 * span,
    )
    shaded[..., 3] = ~np.isnan(height_m)
    hills.imshow(shaded, extent=extent, origin="lower", interpolation="bilinear")
    step = _round_step(span / 12)
    levels = np.arange(np.ceil(np.nanmin(height_m) / step), np.nanmax(height_m) / step) * step
    lines = hills.contour(
        np.ma.masked_invalid(height_m), levels, extent=extent, colors=INK, linewidths=0.4
    )
    hills.clabel(lines, lines.levels[::2], fontsize=6, fmt="%g")
    nodes = f"{len(east_km):,} of {field.nodes:,} nodes"
    hills.set_title(f"Learned hills: {nodes},\ncontours every {step:g} m")
    dots = driven.scatter(
        east_km, north_km, c=np.maximum(passes, 1), s=0.8, lw=0, cmap="viridis_r", norm=LogNorm()
    )
    driven.set_title("Segments that passed each node")
    bar = figure.colorbar(
        dots, ax=driven, location="bottom", shrink=0.6, aspect=40, pad=0.02, format="{x:g}"
    )
    bar.outline.set_visible(False)
    for axes in (hills, driven):
        axes.set_aspect("equal")
        axes.set_xlim(extent[:2])
        axes.set_ylim(extent[2:])
        axes.grid(visible=False)
        axes.set_xlabel("km east")
        axes.set_ylabel("km north")
    return figure


def _largest_region(field: Field) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Kilometres east and north of its middle, elevation and passes of the largest region."""
    if field.nodes < 10:
        raise DataError(
            f"The field has {field.nodes} nodes, too few to draw. Learn it from more vehicles, or "
            "with a smaller number of vehicles a node needs."
        )
    counts = np.bincount(field.region)
    inside = field.region == counts.argmax()
    latitude, longitude = field.grid.positions(field.keys[inside])
    middle = float(np.median(longitude))
    # Turned so that the region's middle is far from where longitudes wrap.
    longitude = np.mod(longitude - middle + 180, 360) - 180
    km = EARTH_RADIUS_M / 1000 * np.pi / 180
    north = (latitude - np.median(latitude)) * km
    east = longitude * km * np.cos(np.radians(np.median(latitude)))
    return east, north, field.elevation_m[inside], field.passes[inside]


def _raster(
    field: Field, east_km: FloatArray, north_km: FloatArray, elevation_m: FloatArray
) -> tuple[FloatArray, tuple[float, float, float, float]]:
    """Heights on a regular raster, NaN away from any node, and its bounds in km."""
    cell_km = field.grid.cell_m / 1000
    margin = MARGIN_CELLS * cell_km
    west, east = east_km.min() - margin, east_km.max() + margin
    south, north = north_km.min() - margin, north_km.max() + margin
    pixel = max(cell_km / 2, max(east - west, north - south) / MOST_PIXELS)
    across, up = np.arange(west, east, pixel), np.arange(south, north, pixel)
    mesh = np.meshgrid(across, up)
    points = np.stack([east_km, north_km], axis=1)
    heights = griddata(points, elevation_m, (mesh[0], mesh[1]), method="linear")
    away, _ = cKDTree(points).query(np.stack([m.ravel() for m in mesh], axis=1))
    heights[away.reshape(heights.shape) > REACH_CELLS * cell_km] = np.nan
    return heights, (float(west), float(east), float(south), float(north))


def _round_step(step: float) -> float:
    """The nearest of 1, 2, 5, 10, 20, ... at or above `step`."""
    power = 10 ** np.floor(np.log10(max(step, 1e-3)))
    return float(next(f * power for f in (1, 2, 5, 10) if f * power >= step * 0.999))
