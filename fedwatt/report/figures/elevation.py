"""An elevation map as a figure, as a page, and beside a terrain model."""

from base64 import b64encode
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LightSource, ListedColormap, Normalize, to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.interpolate import griddata
from scipy.spatial import cKDTree

from fedwatt.elevation.compare import TerrainAgreement
from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.grid import EARTH_RADIUS_M
from fedwatt.errors import DataError, SettingError
from fedwatt.report.page import fill, saved
from fedwatt.report.style import INK, MUTED, PAPER, STYLE, WIDTH_IN, styled

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

    field: ElevationMap
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
def elevation_figure(field: ElevationMap) -> Figure:
    """Draw the relief of the largest region; the HTML page has passes and vehicles as well."""
    relief = relief_of(field)
    extent = relief.extent
    aspect = float(np.ptp(extent[2:]) / np.ptp(extent[:2]))
    figure = Figure(figsize=(WIDTH_IN, WIDTH_IN * aspect * 0.88 + 0.9))
    axes = figure.subplots()
    relief.draw(axes)
    nodes = f"{len(relief.east_km):,} of {field.nodes:,} nodes"
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
    step_m = _round_step(float(np.nanmax(height_m) - np.nanmin(height_m)) / 12)
    passes = field.passes[inside]
    vehicles = field.vehicles[inside]
    return Relief(field, east, north, passes, vehicles, height_m, extent, step_m)


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


def _round_step(step: float) -> float:
    """Return the nearest of 1, 2, 5, 10, 20, ... at or above `step`."""
    power = 10 ** np.floor(np.log10(max(step, 1e-3)))
    return float(next(f * power for f in (1, 2, 5, 10) if f * power >= step * 0.999))


BLUE = "#0072b2"
ORANGE = "#d55e00"


@styled
def agreement_figure(agreement: TerrainAgreement) -> Figure:
    """Draw the learned elevation of all nodes over that of a terrain model."""
    figure = Figure(figsize=(WIDTH_IN, WIDTH_IN))
    axes = figure.subplots()
    every = np.concatenate([agreement.learned_m, agreement.reference_m])
    reach = float(np.abs(every).max()) * 1.05
    line = np.array([-reach, reach])
    axes.plot(line, line, color=MUTED, linewidth=0.8, label="equal")
    axes.plot(agreement.reference_m, agreement.learned_m, "o", color=BLUE, markersize=1.6)
    axes.plot(line, agreement.slope * line, color=ORANGE, label=f"slope {agreement.slope:.2f}")
    axes.set(aspect="equal", xlim=line, ylim=line, xlabel="terrain model, m")
    axes.set_title("Learned elevation of each node, m")
    errors = f"RMS {agreement.rms_m:.1f} m\nmedian {agreement.median_m:.1f} m"
    text = f"r = {agreement.correlation:.3f}\n{errors}"
    axes.text(0.03, 0.97, text, transform=axes.transAxes, va="top", color=INK)
    axes.legend(loc="lower right")
    return figure


DPI: Final = 220
PAGE_PIXELS: Final = 2200
KINDS: Final = (".png", ".svg", ".pdf", ".html")


def write_map(field: ElevationMap, out: Path, *, driven: int = 0) -> None:
    """Draw a field into a .png, .svg or .pdf file, or an .html page that pans and zooms.

    `driven` is how many nodes were driven at all, also those that are not in the field; 0: unknown.
    """
    if out.suffix not in KINDS:
        raise SettingError(
            f"A map is written to a file that ends in {', '.join(KINDS)}, not {out}."
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".html":
        out.write_text(map_page(relief_of(field), driven), encoding="utf-8")
        return
    figure = elevation_figure(field)
    out.write_bytes(saved(figure, out.suffix[1:], dpi=DPI if out.suffix == ".png" else "figure"))


def map_page(relief: Relief, driven: int = 0) -> str:
    """Return the page: the relief as one picture, the nodes as numbers for the other layers."""
    west, east, south, north = relief.extent
    across = (relief.east_km - west) / (east - west)
    down = (north - relief.north_km) / (north - south)
    low = float(np.nanmin(relief.height_m))
    high = float(np.nanmax(relief.height_m))
    land = colormaps["terrain"](relief.colours(np.linspace(low, high, 9)))
    heat = colormaps["viridis_r"](np.linspace(0, 1, 16))
    with matplotlib.rc_context(STYLE):
        picture = relief.image(PAGE_PIXELS)
    facts: dict[str, Any] = {
        "kilometres": [east - west, north - south],
        "nodes": len(relief.east_km),
        "x": _packed(across * 65535, "<u2"),
        "y": _packed(down * 65535, "<u2"),
        "passes": _packed(np.clip(relief.passes, 1, 65535), "<u2"),
        "vehicles": _packed(np.clip(relief.vehicles, 0, 255), "u1"),
        "cell": relief.field.grid.cell_m / 1000,
        "heat": [to_hex(colour) for colour in heat],
        "few_many": list(FEW_MANY),
        "most_passes": int(max(relief.passes.max(), 2)),
    }
    return fill(
        "fedwatt.report",
        "elevation.html.jinja",
        picture=b64encode(picture).decode(),
        facts=facts,
        nodes=relief.field.nodes,
        shown=len(relief.east_km),
        least=int(relief.vehicles.min()),
        most=int(min(relief.vehicles.max(), 20)),
        usual_k=max(USUAL_K, int(relief.vehicles.min())),
        driven=driven,
        step=f"{relief.step_m:g}",
        low=f"{low:+.0f}".replace("-", "\N{MINUS SIGN}"),
        high=f"{high:+.0f}",
        land=[to_hex(colour) for colour in land],
        ink=INK,
        muted=MUTED,
        paper=PAPER,
    )


def _packed(values: np.ndarray, kind: str) -> str:
    return b64encode(np.round(values).astype(kind).tobytes()).decode()
