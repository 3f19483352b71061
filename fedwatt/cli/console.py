"""The two streams that commands write to, and what several commands show there."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from fedwatt.files import write_bytes, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Without markup: a path or a label may hold brackets, and messages speak of [[method]] tables.
console = Console(markup=False, highlight=False)
errors = Console(stderr=True, markup=False, highlight=False)


def plain_table(headings: Sequence[str], rows: Iterable[Iterable[object]]) -> Table:
    """Return a table without lines."""
    table = Table(*headings, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(str, row))
    return table


def ruled_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table of names and, right-aligned beside them, numbers; nothing is cut off."""
    table = Table(title=title)
    for place, name in enumerate(headings):
        table.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def write_figure(path: Path, figure: "Figure") -> None:
    """Write a figure as SVG and say where it is."""
    from fedwatt.report.svg import saved

    write_bytes(path, saved(figure))
    console.print(f"Figure: {path}")


def write_page(path: Path, page: str) -> None:
    """Write an HTML page and say where it is."""
    write_text(path, page)
    console.print(f"Page: {path}")


def wait_for_interrupt() -> None:
    """Return when Ctrl-C is pressed, or a service manager says to stop."""
    with suppress(KeyboardInterrupt):
        Event().wait()
