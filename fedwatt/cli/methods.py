"""`fedwatt methods`: every method, its composition, hyperparameters and their defaults."""

from typing import Annotated

import typer
from rich.table import Table

from fedwatt.cli.console import console
from fedwatt.methods import METHODS, get


def methods(
    name: Annotated[str | None, typer.Argument(help="Only this one.", metavar="[NAME]")] = None,
) -> None:
    """List the methods, what they are made of and their hyperparameters."""
    for known in [name] if name is not None else METHODS:
        method = get(known)
        table = Table(
            title=f"[bold]{known}[/]  {METHODS[known].summary}",
            title_justify="left",
            show_header=False,
            box=None,
            padding=(0, 2),
        )
        table.add_row("made of", method.composition)
        for setting, default in method.settings.items():
            table.add_row(setting, repr(default))
        console.print(table)
        console.print()
