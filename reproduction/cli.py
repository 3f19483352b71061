"""`fedwatt reproduce`: the paper's tables and figures, each beside the printed numbers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer
from rich.table import Table
from typer.core import TyperGroup

from fedwatt.cli.console import console, errors
from reproduction.verify_cli import verify

if TYPE_CHECKING:
    from reproduction.lab import Lab
    from reproduction.study import Setting, Study


def reproduce(
    studies: Annotated[
        list[str] | None,
        typer.Argument(help="Studies by name, or 'all'. --list shows them.", metavar="[STUDY]..."),
    ] = None,
    scale: Annotated[str, typer.Option(help="smoke, small or paper.")] = "smoke",
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder with files of VED or eVED, or a fleet made by 'fedwatt data'; repeat for "
            "several. By default $FEDWATT_DATA."
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="ved, ved-electrified, eved, synthetic or synthetic-enriched; repeat for several. "
            "By default those that are there."
        ),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Only these methods; repeat for several.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    out: Annotated[Path, typer.Option(help="Folder for cells and report.")] = Path(
        "runs/reproduction"
    ),
    records: Annotated[
        Path | None,
        typer.Option(help="Folder of compact records: taken up at the start, written at the end."),
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="On a GPU, the same bits whoever shares a stack, so that records can be verified "
            "bit for bit; slower.",
        ),
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show cells and core-hours; train nothing.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show the studies.")] = False,
) -> None:
    """Regenerate the paper's tables and figures beside the printed numbers, in one page.

    What has run is kept in --out: the same command continues where it was stopped. 'fedwatt
    reproduce verify' runs committed records again and compares.
    """
    from reproduction.catalogue import select
    from reproduction.plan import plan_table

    if list_:
        console.print(_listed())
        return
    chosen = select(studies or ["all"])
    lab, setting = _opened(scale, data, dataset or (), method, (device, out, records))
    lab.scale = replace(lab.scale, deterministic=deterministic)
    if plan:
        console.print(plan_table(lab, setting, chosen))
    else:
        _run(lab, setting, chosen)


def _opened(
    scale: str,
    data: list[Path] | None,
    datasets: Sequence[str],
    methods: list[str] | None,
    place: tuple[str, Path, Path | None],
) -> "tuple[Lab, Setting]":
    """Return the cells that are there, and what to make of the data that is there.

    `place` is where cells are trained and kept: device, folder, folder of records.
    """
    from reproduction.cell import METHODS
    from reproduction.data import find_sources, usual_folder
    from reproduction.lab import Lab
    from reproduction.scale import scale_of
    from reproduction.study import setting_for

    usual = usual_folder()
    sources = find_sources(data or ([usual] if usual is not None else []))
    size = scale_of(scale)
    setting = setting_for(size, sources, datasets, methods or METHODS)
    device, out, records = place
    return Lab(size, out / size.name, sources, device, records), setting


def _run(lab: "Lab", setting: "Setting", chosen: "Sequence[Study]") -> None:
    """Train what is missing, keep it, and write the page."""
    from reproduction.page import write_page
    from reproduction.progress import progress_for

    cells = [cell for study in chosen for cell in study.cells(setting)]
    try:
        with progress_for(console, cells, lab) as view:
            lab.run(cells, view)
    except KeyboardInterrupt:
        errors.print("Stopped. Finished cells are kept: the same command continues.")
        raise typer.Exit(130) from None
    finally:
        lab.save(setting)
    page = write_page(lab, setting, chosen, lab.out / "report.html")
    console.print(f"Report: {page}")


def report(
    records: Annotated[
        Path, typer.Option(help="Folder of compact records; by default the committed ones.")
    ] = Path("results/reproduction"),
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path(
        "build/reproduction/report.html"
    ),
) -> None:
    """Write the HTML report of all studies from records; train nothing."""
    from tempfile import TemporaryDirectory

    from reproduction.catalogue import STUDIES
    from reproduction.lab import Lab
    from reproduction.page import write_page
    from reproduction.record import scale_of_records
    from reproduction.scale import scale_of
    from reproduction.study import setting_of

    with TemporaryDirectory() as scratch:
        lab = Lab(scale_of(scale_of_records(records)), Path(scratch), records=records)
        page = write_page(lab, setting_of(lab), list(STUDIES.values()), out)
    console.print(f"Report: {page}")


class _StudiesByDefault(TyperGroup):
    """Commands of which "studies" need not be named: `fedwatt reproduce main` is enough."""

    default = "studies"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the name of the default command where there is none."""
        named = bool(args) and args[0] in self.commands
        return super().parse_args(ctx, args if named else [self.default, *args])


def add_to(app: typer.Typer) -> None:
    """Make this a command of `fedwatt`."""
    group = typer.Typer(cls=_StudiesByDefault, help=reproduce.__doc__)
    group.command("studies")(reproduce)
    group.command("verify")(verify)
    group.command("report")(report)
    app.add_typer(group, name="reproduce")


def _listed() -> Table:
    from reproduction.catalogue import STUDIES
    from reproduction.paper import printed

    table = Table(title="Studies, in the order of the paper")
    for name in ("Study", "What it shows", "Beside the paper's", "Claims"):
        table.add_column(name, overflow="fold")
    for name, study in STUDIES.items():
        # The paper's labels say what a table is about: "tab:bev_main_results".
        labels = (printed(table).label.removeprefix("tab:") for table in study.printed)
        beside = ", ".join(label.replace("_", " ") for label in labels)
        table.add_row(name, study.title, beside or "–", ", ".join(study.claims))
    return table
