"""Common parts of the trip and route pages: figures along the route, and the page."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import Locator

from fedwatt.report.page import fill, inline, saved
from fedwatt.report.style import GRID, INK, MUTED, PAPER, WIDTH_IN, Look, styled

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
            {"title": title, "caption": caption, "svg": inline(saved(figure), name, title, colours)}
            for name, title, caption, figure in figures
        ],
        light={variable: look.colour for variable, look in looks.items()},
        dark={variable: look.dark for variable, look in looks.items()},
        **values,
    )
