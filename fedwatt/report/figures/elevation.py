"""The learned hills: shaded relief with contours, how often each place was driven, and by whom."""

from dataclasses import dataclass
from io import BytesIO
from typing import Final

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import BoundaryNorm, LightSource, ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.interpolate import griddata
from scipy.spatial import cKDTree

from fedwatt.elevation.elevation_map import Field
from fedwatt.elevation.grid import EARTH_RADIUS_M
from fedwatt.errors import DataError
from fedwatt.report.style import INK, WIDTH_IN, styled

FloatArray = NDArray[np.float64]
Extent = tuple[float, float, float, float]

REACH_CELLS: Final = 3.0  # ground farther from any known node than this stays blank
MOST_PIXELS: Final = 900
EXAGGERATION: Final = 6.0
MARGIN_CELLS: Final = 4
USUAL_K: Final = 3
FEW_MANY: Final = ("#b3331d", "#e58a2e", "#9db7c9", "#5f93b8", "#2f6f9f", "#12466e")
"""One and two vehicles warm, three and more cold: what the usual k hides stands out."""


@dataclass(frozen=True, eq=False)
class Relief:
    """The largest region of a field, ready to be drawn.

    east_km, north_km   of its nodes, from its middle, [nodes]
    passes, vehicles    of its nodes, [nodes]
    height_m            raster [rows, columns] of ground near nodes, NaN elsewhere, south first
    extent              west, east, south and north of the raster in km
    step_m              between contours
    """

    field: Field
    east_km: FloatArray
    north_km: FloatArray
    passes: FloatArray
    vehicles: NDArray[np.int64]
    height_m: FloatArray
    extent: Extent
    step_m: float

    @property
    def colours(self) -> Normalize:
        """Heights to the part of the colour map that looks like land: no sea, little snow."""
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

    def image(self, pixels: int) -> bytes:
        """Return the map alone as a PNG, its longer side about `pixels` long, clear where blank."""
        across = np.ptp(self.extent[:2])
        up = np.ptp(self.extent[2:])
        inches = 8.0
        scale = inches / max(across, up)
        figure = Figure(figsize=(across * scale, up * scale))
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1))
        self.draw(axes)
        axes.set_axis_off()
        axes.set_aspect("auto")
        drawn = BytesIO()
        figure.savefig(drawn, format="png", dpi=pixels / inches, transparent=True)
        return drawn.getvalue()


@styled
def elevation_figure(field: Field) -> Figure:
    """Largest region of a field: its hills, its passes, and how many vehicles drove where."""
    relief = relief_of(field)
    extent = relief.extent
    aspect = np.ptp(extent[2:]) / np.ptp(extent[:2])
    figure = Figure(figsize=(WIDTH_IN, 3 * (WIDTH_IN * float(aspect) * 0.88 + 0.9)))
    hills, driven, shared = figure.subplots(3, 1)
    relief.draw(hills)
    nodes = f"{len(relief.east_km):,} of {field.nodes:,} nodes"
    hills.set_title(f"Learned hills: {nodes},\ncontours every {relief.step_m:g} m")
    low = float(np.nanmin(relief.height_m))
    high = float(np.nanmax(relief.height_m))
    land = ListedColormap(colormaps["terrain"](relief.colours(np.linspace(low, high, 256))))
    _bar(figure, hills, ScalarMappable(Normalize(low, high), land), "m above the region's mean")
    where = {"x": relief.east_km, "y": relief.north_km, "s": 0.8, "lw": 0}
    passes = np.maximum(relief.passes, 1)
    passed = driven.scatter(c=passes, cmap="viridis_r", norm=LogNorm(), **where)
    driven.set_title("Segments that passed each node")
    _bar(figure, driven, passed, "segments", "{x:g}")
    most = len(FEW_MANY)
    counted = shared.scatter(
        c=np.clip(relief.vehicles, 1, most),
        cmap=ListedColormap(list(FEW_MANY)),
        norm=BoundaryNorm(np.arange(0.5, most + 1), most),
        **where,
    )
    shared.set_title(f"Vehicles that drove each node:\n{hidden_words(relief.vehicles)}")
    bar = _bar(figure, shared, counted, "vehicles")
    bar.set_ticks(range(1, most + 1), labels=[*map(str, range(1, most)), f"{most} or more"])
    for axes in (hills, driven, shared):
        axes.set(aspect="equal", xlim=extent[:2], ylim=extent[2:])
        axes.set(xlabel="km east", ylabel="km north")
        axes.grid(visible=False)
    return figure


def hidden_words(vehicles: NDArray[np.int64]) -> str:
    """Return a sentence on the places that the usual k hides."""
    few = int((vehicles < USUAL_K).sum())
    if not few:
        return f"all by {vehicles.min()} or more"
    return f"k = {USUAL_K} hides {few:,} of {len(vehicles):,}"


def _bar(
    figure: Figure, axes: Axes, of: ScalarMappable, label: str, form: str | None = None
) -> Colorbar:
    """Return a colour bar under a map."""
    bar = figure.colorbar(
        of, ax=axes, location="bottom", shrink=0.6, aspect=40, pad=0.02, format=form, label=label
    )
    bar.outline.set_visible(False)
    return bar


def relief_of(field: Field) -> Relief:
    """Everything that a map of the field's largest region needs."""
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
    step_m = _round_step(float(np.nanmax(height_m) - np.nanmin(height_m)) / 12)
    passes = field.passes[inside]
    vehicles = field.vehicles[inside]
    return Relief(field, east, north, passes, vehicles, height_m, extent, step_m)


def _raster(
    field: Field, east_km: FloatArray, north_km: FloatArray, elevation_m: FloatArray
) -> tuple[FloatArray, Extent]:
    """Heights on a regular raster, NaN away from any node, and its bounds in km."""
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


def _round_step(step: float) -> float:
    """Return the nearest of 1, 2, 5, 10, 20, ... at or above `step`."""
    power = 10 ** np.floor(np.log10(max(step, 1e-3)))
    return float(next(f * power for f in (1, 2, 5, 10) if f * power >= step * 0.999))
