"""Common parts of the trip and route pages: a map, figures along the route, and the page."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import Locator

from fedwatt.report.page import fill, inline, saved
from fedwatt.report.style import GRID, INK, MUTED, PAPER, WIDTH_IN, Look, styled
from fedwatt.telemetry.trip import FloatArray

HEIGHT_IN = 2.35
COLOURS = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"}
Drawn = tuple[str, str, str, Figure]
"""Name, title, caption and figure."""


@styled
def drive_figure(
    along: str, unit: str, ticks: Locator, draw: Callable[[Axes], None], *, legend: bool = True
) -> Figure:
    """Return a figure over minutes or kilometres; its legend names what has a label."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN))
    axes = figure.add_subplot()
    axes.set_xlabel(along)
    axes.set_ylabel(unit)
    axes.margins(x=0)
    axes.xaxis.set_major_locator(ticks)
    draw(axes)
    if legend and axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside upper left", ncols=3)
    return figure


@dataclass(frozen=True, eq=False)
class MapLine:
    """The positions of a route, [points], with energy and distance since the start at each."""

    name: str
    latitude_deg: FloatArray
    longitude_deg: FloatArray
    energy_wh: FloatArray
    metres: FloatArray


KM_PER_DEGREE: Final = 111.2
PIECES: Final = 250
SHORTEST_PIECE_M: Final = 150.0
"""Length below which energy per kilometre is mostly that of one stop or one start."""
MAP_HEIGHTS_IN: Final = (1.5, 3.6)
LOW_TO_HIGH: Final = LinearSegmentedColormap.from_list(
    "use", ("#3a86c8", "#2fae7c", "#d9a21b", "#d6492f")
)
"""Colours that stand out from a light and from a dark page."""


@styled
def route_map(moved: Sequence[MapLine]) -> Figure:
    """Draw routes north up, coloured by energy per kilometre.

    It is made of the positions alone: street tiles would tell a map server where somebody drives.
    """
    origin = (moved[0].latitude_deg[0], moved[0].longitude_deg[0])
    points = [_kilometres(line, *origin) for line in moved]
    corners = np.concatenate(points)
    span = np.maximum(np.ptp(corners, axis=0), 0.1)
    height = float(np.clip(WIDTH_IN * span[1] / span[0], *MAP_HEIGHTS_IN))
    figure = Figure(figsize=(WIDTH_IN, height + 0.75))
    axes = figure.add_subplot()
    axes.set(aspect="equal", adjustable="datalim")
    axes.set_axis_off()
    pieces = [_pieces(line) for line in moved]
    use = np.concatenate([per_km for _, per_km in pieces])
    scale = Normalize(*np.quantile(use, [0.05, 0.95]))
    for line, positions, (cuts, per_km) in zip(moved, points, pieces, strict=True):
        strokes = [positions[a : b + 1] for a, b in pairwise(cuts)]
        drawn = LineCollection(strokes, cmap=LOW_TO_HIGH, norm=scale, linewidths=3.2)
        drawn.set_array(per_km)
        drawn.set_capstyle("round")
        axes.add_collection(drawn)
        _mark(axes, positions[0], "start")
        _mark(axes, positions[-1], line.name if len(moved) > 1 else "arrival")
    axes.margins(0.12)
    axes.autoscale_view()
    bar = figure.colorbar(
        ScalarMappable(scale, LOW_TO_HIGH),
        ax=axes,
        location="bottom",
        shrink=0.7,
        aspect=40,
        pad=0.03,
        label="Wh/km",
    )
    bar.outline.set_visible(False)
    return figure


def _kilometres(line: MapLine, latitude_deg: float, longitude_deg: float) -> FloatArray:
    """Return kilometres east and north of a place, [points, 2]."""
    east = (line.longitude_deg - longitude_deg) * np.cos(np.radians(latitude_deg))
    return KM_PER_DEGREE * np.stack([east, line.latitude_deg - latitude_deg], axis=1)


def _pieces(line: MapLine) -> tuple[np.ndarray, FloatArray]:
    """Return the points at which a route is cut, and the Wh/km of each piece."""
    length = line.metres[-1] - line.metres[0]
    count = int(np.clip(length / SHORTEST_PIECE_M, 1, PIECES))
    ends = line.metres[0] + np.linspace(0, length, count + 1)
    cuts = np.unique(np.searchsorted(line.metres, ends).clip(0, len(line.metres) - 1))
    energy = np.diff(line.energy_wh[cuts])
    return cuts, 1000 * energy / np.maximum(np.diff(line.metres[cuts]), 1.0)


def _mark(axes: Axes, place: FloatArray, name: str) -> None:
    axes.plot(*place, "o", color=INK, markersize=5, zorder=4)
    axes.annotate(name, tuple(place), xytext=(6, 5), textcoords="offset points", color=INK)


def map_drawn(lines: Iterable[MapLine]) -> list[Drawn]:
    """Return the map as the first figure of a page; empty without positions that move."""
    moved = [line for line in lines if line.metres[-1] - line.metres[0] >= 2 * SHORTEST_PIECE_M]
    if not moved:
        return []
    figure = route_map(moved)
    caption = "Drawn north up from the positions alone; nothing is loaded from a map server."
    return [("map", "Energy along the route", caption, figure)]


def score(name: str, value: str, unit: str, remark: str, colour: str) -> dict[str, str]:
    """Return a number in large type: what it is, the CSS variable of its colour, and a remark."""
    return {"name": name, "value": value, "unit": unit, "remark": remark, "colour": colour}


def drive_page(figures: Iterable[Drawn], looks: Mapping[str, Look], **values: Any) -> str:
    """Return the page as text, with `looks` by the CSS variable of their colour."""
    colours = COLOURS | {look.colour: variable for variable, look in looks.items()}
    return fill(
        "fedwatt.edge",
        "trip.html.jinja",
        figures=[
            {
                "name": name,
                "title": title,
                "caption": caption,
                "svg": inline(saved(figure), name, title, colours),
            }
            for name, title, caption, figure in figures
        ],
        light={variable: look.colour for variable, look in looks.items()},
        dark={variable: look.dark for variable, look in looks.items()},
        **values,
    )
