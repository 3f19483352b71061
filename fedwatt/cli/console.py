"""The two streams that commands write to, tables and pages on them, and the form of help."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
import typer.core
from rich import box
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from fedwatt.files import write_text

if TYPE_CHECKING:
    pass

# Without markup: a path or a label may hold brackets, and messages speak of [[method]] tables.
console = Console(markup=False, highlight=False)
errors = Console(stderr=True, markup=False, highlight=False)


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def print_json(value: object) -> None:
    """Print a value as JSON; numbers that are not finite become null."""
    console.print(json.dumps(_plain(value), indent=2, ensure_ascii=False), soft_wrap=True)


def _plain(value: Any) -> Any:
    """Return a value made of types that JSON has."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)


def records(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[dict[str, str]]:
    """Return the rows of a table as one object each."""
    return [dict(zip(headings, row, strict=True)) for row in rows]


def print_table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], *, as_json: bool = False
) -> None:
    """Print rows as a table, or as JSON with one object per row."""
    if as_json:
        print_json(records(headings, rows))
    else:
        console.print(ruled_table(title, headings, rows))


def plain_table(headings: Sequence[str], rows: Iterable[Iterable[object]]) -> Table:
    """Return a table without lines."""
    table = Table(*headings, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(str, row))
    return table


def ruled_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table of names and, right-aligned beside them, numbers; nothing is cut off."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(headings):
        table.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def write_page(path: Path, page: str) -> None:
    """Write an HTML page and print its place."""
    write_text(path, page)
    console.print(f"Page: {path}")


def wait_for_interrupt() -> None:
    """Return when Ctrl-C is pressed, or a service manager says to stop."""
    with suppress(KeyboardInterrupt):
        Event().wait()


# Rich's help has five columns: at 80 characters it leaves sixteen for the text of an option.
typer.core.HAS_RICH = False


ORDER = ("Train", "Predict", "Data", "Deploy", "Analyse")
"""Panels of the first screen; others follow."""


class Panels(TyperGroup):
    """A group whose help lists commands by their panel."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per panel."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                panel = getattr(command, "rich_help_panel", None)
                title = panel if isinstance(panel, str) else "Commands"
                panels.setdefault(title, []).append((name, command.get_short_help_str(80)))
        for title in sorted(panels, key=lambda title: (*ORDER, title).index(title)):
            with formatter.section(title):
                formatter.write_dl(panels[title])
