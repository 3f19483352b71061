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
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Also write the figures as PDF files.")
    ] = False,
) -> None:
    """Write report.html, figures (SVG) and tables (Markdown, LaTeX, CSV)."""
    from fedwatt.report.write import write_report

    if len(runs) > 1 and out is None:
        raise typer.BadParameter("Several runs need --out, the folder for their common report.")
    console.print(f"Report: {write_report(*runs, out=out, pdf=pdf)}")
