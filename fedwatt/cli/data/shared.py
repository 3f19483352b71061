"""Options, refusals and progress that the data commands share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fedwatt.cli.console import console
from fedwatt.errors import SettingError

Fleet = Annotated[Path, typer.Argument(help="Read this folder, made by 'fedwatt data'.")]
OUT_HELP = "Write to this file or folder."
Out = Annotated[Path, typer.Option("--out", help=OUT_HELP)]
Seed = Annotated[int, typer.Option(help="Set the seed of all random draws.")]
Kind = Annotated[str, typer.Option(help="Choose passenger, truck or bus.")]
TerrainModel = Annotated[
    Path | None,
    typer.Option("--dem", help="Read elevation from a terrain model (.hgt, GeoTIFF, points)."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check everything; write and send nothing.")
]
MIN_TRIPS = "Leave out vehicles with fewer usable trips."


def refuse_filled(out: Path) -> None:
    """Raise before any work if `out` holds something."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingError(f"{out} is not empty. Choose another --out or remove it first.")


def say_made(out: Path) -> None:
    """Print the place of the new fleet and the next command."""
    train = f"fedwatt run --data {quote(str(out))}"
    console.print(f"The fleet is in {out}. Train on it with: {train}", soft_wrap=True)


@contextmanager
def import_progress() -> Iterator[Callable[[int, int, str], None]]:
    """Yield a bar that follows an import: bytes while reading, rows while cleaning."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def report(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield report
