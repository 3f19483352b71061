"""An elevation map as a figure."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LightSource, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from scipy.interpolate import griddata
from scipy.spatial import cKDTree

from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.grid import EARTH_RADIUS_M
from fedwatt.errors import DataError, SettingError
from fedwatt.files import write_bytes
from fedwatt.report.page import saved
from fedwatt.report.style import INK, WIDTH_IN, styled

FloatArray = NDArray[np.float64]
Extent = tuple[float, float, float, float]

REACH_CELLS = 3.0  # ground farther from any known node than this stays blank
MOST_PIXELS = 900
EXAGGERATION = 6.0
MARGIN_CELLS = 4


@dataclass(frozen=True, eq=False)
class Relief:
    """The largest region of a field, ready to be drawn.

    nodes      of the region
    height_m   raster [rows, columns] of ground near nodes, NaN elsewhere, south first
    extent     west, east, south and north of the raster in km, from the region's middle
    step_m     between contours
    """

    nodes: int
    height_m: FloatArray
    extent: Extent
    step_m: float

    @property
    def colours(self) -> Normalize:
        """Map heights to the part of the colour map that looks like land: no sea, little snow."""
        low = float(np.nanmin(self.height_m))
        high = float(np.nanmax(self.height_m))
        span = max(high - low, 1e-6)
        return Normalize(low - 0.35 * span, high + 0.15 * span)

    def draw(self, axes: Axes) -> None:
        """Draw shaded relief with contours into `axes`."""
        pixel_m = 1000 * (self.extent[1] - self.extent[0]) / self.height_m.shape[1]
        # The light needs heights everywhere; blank ground is made transparent afterwards.
        blank = np.isnan(self.height_m)
        filled = np.where(blank, np.nanmean(self.height_m), self.height_m)
        light = LightSource(azdeg=315, altdeg=45)
        slope = {"vert_exag": EXAGGERATION, "dx": pixel_m, "dy": pixel_m}
        shaded = light.shade(filled, colormaps["terrain"], self.colours, "soft", **slope)
        shaded[..., 3] = ~blank
        axes.imshow(shaded, extent=self.extent, origin="lower", interpolation="bilinear")
        low = np.nanmin(self.height_m)
        high = np.nanmax(self.height_m)
        levels = np.arange(np.ceil(low / self.step_m), high / self.step_m) * self.step_m
        ground = np.ma.masked_invalid(self.height_m)
        lines = axes.contour(ground, levels, extent=self.extent, colors=INK, linewidths=0.4)
        axes.clabel(lines, levels[::2].tolist(), fontsize=6, fmt="%g")


@styled
def elevation_figure(field: ElevationMap) -> Figure:
    """Draw the relief of the largest region."""
    relief = relief_of(field)
    extent = relief.extent
    aspect = float(np.ptp(extent[2:]) / np.ptp(extent[:2]))
    figure = Figure(figsize=(WIDTH_IN, WIDTH_IN * aspect * 0.88 + 0.9))
    axes = figure.subplots()
    relief.draw(axes)
    nodes = f"{relief.nodes:,} of {field.nodes:,} nodes"
    axes.set_title(f"Learned elevation: {nodes},\ncontours every {relief.step_m:g} m")
    low = float(np.nanmin(relief.height_m))
    high = float(np.nanmax(relief.height_m))
    land = ListedColormap(colormaps["terrain"](relief.colours(np.linspace(low, high, 256))))
    bar = figure.colorbar(
        ScalarMappable(Normalize(low, high), land),
        ax=axes,
        location="bottom",
        shrink=0.6,
        aspect=40,
        pad=0.02,
        label="m above the region's mean",
    )
    bar.outline.set_visible(False)
    axes.set(aspect="equal", xlim=extent[:2], ylim=extent[2:])
    axes.set(xlabel="km east", ylabel="km north")
    axes.grid(visible=False)
    return figure


def relief_of(field: ElevationMap) -> Relief:
    """Return a shaded relief of the elevation map's largest connected region."""
    if field.nodes < 10:
        raise DataError(
            f"The field has {field.nodes} nodes, too few to draw. Learn it from more vehicles, or "
            "with a smaller number of vehicles a node needs."
        )
    inside = field.region == np.bincount(field.region).argmax()
    latitude, longitude = field.grid.positions(field.keys[inside])
    # Turned so that the region's middle, a mean of directions, is far from where longitudes wrap.
    turned = np.exp(1j * np.radians(longitude)).mean()
    longitude = np.mod(longitude - np.degrees(np.angle(turned)) + 180, 360) - 180
    km = EARTH_RADIUS_M / 1000 * np.pi / 180
    north = (latitude - np.median(latitude)) * km
    east = longitude * km * np.cos(np.radians(np.median(latitude)))
    height_m, extent = _raster(field, east, north, field.elevation_m[inside])
    contours = MaxNLocator(12, steps=[1, 2, 5, 10])
    levels = contours.tick_values(float(np.nanmin(height_m)), float(np.nanmax(height_m)))
    return Relief(len(east), height_m, extent, step_m=float(levels[1] - levels[0]))


def _raster(
    field: ElevationMap, east_km: FloatArray, north_km: FloatArray, elevation_m: FloatArray
) -> tuple[FloatArray, Extent]:
    """Return elevations on a regular raster, NaN away from any node, and its bounds in km."""
    cell_km = field.grid.cell_m / 1000
    margin = MARGIN_CELLS * cell_km
    west = east_km.min() - margin
    east = east_km.max() + margin
    south = north_km.min() - margin
    north = north_km.max() + margin
    pixel = max(cell_km / 2, max(east - west, north - south) / MOST_PIXELS)
    across = np.arange(west, east, pixel)
    up = np.arange(south, north, pixel)
    mesh = np.meshgrid(across, up)
    points = np.stack([east_km, north_km], axis=1)
    heights = griddata(points, elevation_m, (mesh[0], mesh[1]), method="linear")
    away, _ = cKDTree(points).query(np.stack([m.ravel() for m in mesh], axis=1))
    heights[away.reshape(heights.shape) > REACH_CELLS * cell_km] = np.nan
    return heights, (float(west), float(east), float(south), float(north))


DPI = 220
KINDS = (".png", ".svg", ".pdf")


def write_map(field: ElevationMap, out: Path) -> None:
    """Draw a map into a .png, .svg or .pdf file."""
    if out.suffix not in KINDS:
        raise SettingError(
            f"A map is written to a file that ends in {', '.join(KINDS)}, not {out}."
        )
    dpi: int | Literal["figure"] = DPI if out.suffix == ".png" else "figure"
    write_bytes(out, saved(elevation_figure(field), out.suffix[1:], dpi=dpi))
