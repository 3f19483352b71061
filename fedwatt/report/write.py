"""The whole report of a run folder: figures, tables and one page that holds them all."""

import json
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from fedwatt.errors import RunError
from fedwatt.files import write_bytes, write_text
from fedwatt.report.answer import answer
from fedwatt.report.figures.results import FIGURES
from fedwatt.report.load import (
    RunTables,
    fleet_facts,
    load_run,
    load_runs,
    run_facts,
)
from fedwatt.report.page import fill, inline, saved
from fedwatt.report.statistics import PERSONALISED, final_error, vehicle_model
from fedwatt.report.style import GRID, INK, LOOKS, MUTED, PAPER, PARTS, looks, name_of
from fedwatt.report.table import ReportTable, cell_text
from fedwatt.report.tables import outcome, tables
from fedwatt.runs.observers import Observer

VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    PAPER: "--paper",
    **{look.colour: f"--method-{name}" for name, look in LOOKS.items()},
    **{look.colour: f"--part-{name}" for name, look in PARTS.items()},
}
"""Colour of a figure → CSS variable of the page, which has a light and a dark value."""

NEXT_STEPS = (
    (
        "Predict trips with this model",
        (
            "fedwatt export {run} --out model.onnx",
            "fedwatt predict model.onnx TRIP --html trip.html",
        ),
    ),
    (
        "Train on your own vehicles",
        ("fedwatt data import auto FOLDER --out fleets/mine", "fedwatt run --data fleets/mine"),
    ),
    ("Tune the learning rate of every method", ("fedwatt tune --out studies/first",)),
    ("Compare with another run", ("fedwatt report {run} OTHER --out comparison",)),
)
"""What to do after a run, and the commands for it."""


class Reporter(Observer):
    """Writes the report of a run when the run is finished."""

    def on_finish(self, run: Path) -> None:
        """Write the report from the tables, which are complete."""
        write_report(run)


def write_report(*runs: str | Path, out: str | Path | None = None, pdf: bool = False) -> Path:
    """Write report.html, figures/ and tables/ and return the path of the page.

    One run folder gets its report inside it unless `out` says otherwise; several are compared on
    one page in the folder `out`. Figures are SVG files, with `pdf` also PDF files.
    """
    if not runs:
        raise RunError("A report needs at least one run folder.")
    if out is None and len(runs) > 1:
        raise RunError("A report on several runs needs a folder: give it with --out.")
    folders = [Path(run) for run in runs]
    out = folders[0] if out is None else Path(out)
    run = load_run(folders[0]) if len(folders) == 1 else load_runs(folders)
    made = tables(run)
    for table in made:
        write_text(out / "tables" / f"{table.name}.md", table.markdown())
        write_text(out / "tables" / f"{table.name}.csv", table.csv())
    figures = []
    for kind in FIGURES:
        figure = kind.draw(run)
        svg = saved(figure)
        write_bytes(out / "figures" / f"{kind.name}.svg", svg)
        if pdf:
            write_bytes(out / "figures" / f"{kind.name}.pdf", saved(figure, "pdf"))
        markup = inline(svg, kind.name, kind.title, VARIABLES)
        figures.append(
            {"name": kind.name, "title": kind.title, "svg": markup, "caption": kind.caption}
        )
    page = out / "report.html"
    write_text(page, render(run, figures, made, folders[0]))
    return page


def render(
    run: RunTables,
    figures: Sequence[dict[str, str | Markup]],
    made: Sequence[ReportTable],
    folder: Path,
) -> str:
    """Return the page as text."""
    appearance = looks(run.methods)
    return fill(
        "fedwatt.report",
        "report.html.jinja",
        title=" and ".join(origin.name for origin in run.origins),
        answer=answer(run),
        methods=[
            {
                "label": method,
                "name": name_of(method),
                "colour": VARIABLES[appearance[method].colour],
                "rmse": final_error(run, method),
                "personalised": vehicle_model(run, method) == PERSONALISED,
                "outcome": outcome(run, method),
            }
            for method in run.methods
        ],
        origins=[
            {
                "name": origin.name,
                "config": origin.config,
                "fleet": fleet_facts(origin),
                "environment": json.dumps(origin.environment, indent=1, ensure_ascii=False),
            }
            for origin in run.origins
        ],
        run_facts=run_facts(run),
        figures=figures,
        tables=made,
        download=_download,
        next_steps=[
            (title, [command.format(run=folder) for command in commands])
            for title, commands in NEXT_STEPS
        ],
        light={VARIABLES[look.colour]: look.colour for look in (*LOOKS.values(), *PARTS.values())},
        dark={VARIABLES[look.colour]: look.dark for look in (*LOOKS.values(), *PARTS.values())},
        cell_text=cell_text,
        target=run.target,
    )


def _download(table: ReportTable) -> str:
    """Return a table's CSV as a link target, so that the page needs no file beside it."""
    return "data:text/csv;base64," + b64encode(table.csv().encode()).decode()
