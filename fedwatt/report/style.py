"""Style of figures: one palette, one type size, no decoration.

A method has the same colour, dash and marker in every figure of every report. The colours are those
of Okabe and Ito, made a little darker where text in them would be too faint, and can be told apart
with any colour vision; marker and dash repeat the distinction without colour.
"""

import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from itertools import cycle
from pathlib import Path
from typing import Any, Final, ParamSpec
from urllib.parse import quote

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK: Final = "#1f2429"
MUTED: Final = "#68717a"
GRID: Final = "#e3e6e9"
PAPER: Final = "#fefefe"

WIDTH_IN: Final = 4.6
"""Width of every figure. With 9-point type it is readable at 360 pixels and in one paper column."""

STYLE: Final[dict[Any, Any]] = {
    **matplotlib.rc_params_from_file(
        Path(__file__).with_name("fedwatt.mplstyle"), use_default_template=False
    ),
    **dict.fromkeys(("axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
    **dict.fromkeys(("axes.facecolor", "figure.facecolor", "savefig.facecolor"), PAPER),
    "grid.color": GRID,
    "text.color": INK,
}


@dataclass(frozen=True)
class Look:
    """A method's appearance, on a light and on a dark page."""

    colour: str
    dark: str
    marker: str
    dash: str | tuple[int, tuple[int, ...]] = "-"
    name: str = ""  # the method's name as people write it


def _look(dash: str | list[int] = "-", **appearance: str) -> Look:
    return Look(dash=dash if isinstance(dash, str) else (0, tuple(dash)), **appearance)


_TABLES: Final[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("looks.toml").read_text(encoding="utf-8")
)
LOOKS: Final = {name: _look(**look) for name, look in _TABLES["methods"].items()}
PARTS: Final = {name: _look(**look) for name, look in _TABLES["parts"].items()}
"""Parts of a round's time."""


def name_of(label: str) -> str:
    """Return the usual name of a method; other labels stay as they are.

    >>> name_of("fo-ri-fedavg"), name_of("fedavg (night)"), name_of("half rate")
    ('FO-RI-FedAvg', 'FedAvg (night)', 'half rate')
    """
    base, _, run = label.partition(" (")
    name = LOOKS[base].name if base in LOOKS else base
    return name + (f" ({run}" if run else "")


def looks(methods: Sequence[str]) -> dict[str, Look]:
    """Return the appearance of each method; other labels take the unused ones in turn."""
    named = {method: LOOKS[method] for method in methods if method in LOOKS}
    unused = cycle([look for name, look in LOOKS.items() if name not in named] or LOOKS.values())
    return named | {method: next(unused) for method in methods if method not in named}


@contextmanager
def in_style(style: dict[Any, Any] | None = None) -> Iterator[None]:
    """Draw in a style, without warnings of names in a script that the font does not have."""
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Let a figure be drawn in the style of this module, whatever the caller has set."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with in_style():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(STYLE)
            figure = draw(*args, **kwargs)
            return figure

    return drawn


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Move positions apart to at least `gap`, as little as possible and in the same order.

    >>> spread([1.0, 1.0, 5.0], gap=2.0)
    [0.0, 2.0, 5.0]
    """
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    groups: list[tuple[float, int]] = []  # centre and size of labels that touch
    for index in order:
        centre = positions[index]
        size = 1
        while groups and centre - groups[-1][0] < (groups[-1][1] + size) / 2 * gap:
            below, labels = groups.pop()
            centre = (below * labels + centre * size) / (labels + size)
            size += labels
        groups.append((centre, size))
    placed = [c + (k - (n - 1) / 2) * gap for c, n in groups for k in range(n)]
    result = [0.0] * len(positions)
    for index, position in zip(order, placed, strict=True):
        result[index] = position
    return result


def label_lines(axes: Axes, ends: dict[str, float], appearance: dict[str, Look]) -> None:
    """Write each method's name at the right of the axes, level with the end of its line."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # fixes the height of the axes, which the gap depends on
    low, high = axes.get_ylim()
    gap = 11.5 * (high - low) / (axes.bbox.height * 72 / figure.dpi)
    for method, y in zip(ends, spread(list(ends.values()), gap), strict=True):
        text = axes.annotate(
            name_of(method), (1, y), (5, 0), ("axes fraction", "data"), "offset points"
        )
        text.set(va="center", color=appearance[method].colour, weight="bold", gid=series(method))
        text.set_annotation_clip(False)


def points(
    axes: Axes, x: Any, y: Any, method: str, look: Look, *, area: float, **settings: Any
) -> None:
    """Draw a method's marks at `x` and `y`, of an `area` in square points."""
    mark: dict[str, Any] = {"gid": series(method), "label": name_of(method), "zorder": 3} | settings
    axes.scatter(x, y, s=area, marker=look.marker, color=look.colour, linewidths=0, **mark)


def horizontal(axes: Axes) -> None:
    """Draw grid lines for values that run from left to right."""
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")


def legend(figure: Figure, **settings: float) -> None:
    """Draw the legend above the axes."""
    figure.legend(loc="outside upper left", ncols=3, **({"handletextpad": 0.1} | settings))


def series(method: str) -> str:
    """Mark of what belongs to a method in an SVG file, so that a page can hide it.

    >>> series('half "rate"')
    'series:half%20%22rate%22'
    """
    return f"series:{quote(method, safe='')}"


def note(axes: Axes, text: str) -> None:
    """Write the reason for missing data into the middle of the axes."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color=MUTED)
