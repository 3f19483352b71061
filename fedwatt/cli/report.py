"""`fedwatt report`: the report of one run, or several runs side by side."""

from pathlib import Path
from typing import Annotated

import typer

from fedwatt.cli.console import console


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN...")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report; needed for several runs.")
    ] = None,
) -> None:
    """Write report.html, figures (SVG, PDF) and tables (Markdown, LaTeX, CSV)."""
    from fedwatt.report.write import write_report

    if len(runs) > 1 and out is None:
        raise typer.BadParameter("Several runs need --out, the folder for their common report.")
    console.print(f"Report: {write_report(*runs, out=out)}")
