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

INK = "#1f2429"
MUTED = "#68717a"
GRID = "#e3e6e9"
PAPER = "#fefefe"

WIDTH_IN = 4.6
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
LOOKS = {name: _look(**look) for name, look in _TABLES["methods"].items()}
PARTS = {name: _look(**look) for name, look in _TABLES["parts"].items()}
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
    """Draw a legend above the axes; the first ones name all methods."""
    handles, names = figure.axes[0].get_legend_handles_labels()
    spacing = {"handletextpad": 0.1} | settings
    figure.legend(handles, names, loc="outside upper left", ncols=3, **spacing)


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
