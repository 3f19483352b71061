"""`fedwatt reproduce`: the paper's tables and figures, each beside the printed numbers."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer
from rich.table import Table
from typer.core import TyperGroup

from fedwatt.cli.console import console, errors
from fedwatt.errors import RunError

if TYPE_CHECKING:
    from reproduction.data import Sources
    from reproduction.lab import Lab
    from reproduction.study import Setting, Study
    from reproduction.verify import Check, Draw

Recordings = Annotated[
    list[Path] | None,
    typer.Option(
        help="Read VED or eVED files, or a fleet, in this folder. [default: $FEDWATT_DATA]"
    ),
]
Device = Annotated[str, typer.Option(help="Choose auto, cpu or cuda.")]


def reproduce(
    studies: Annotated[
        list[str] | None,
        typer.Argument(help="Studies by name, or 'all'. --list shows them.", metavar="[STUDY]..."),
    ] = None,
    scale: Annotated[str, typer.Option(help="Choose smoke or paper.")] = "smoke",
    recordings: Recordings = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="Select datasets, such as ved or synthetic-enriched. [default: all there are]"
        ),
    ] = None,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="Write to this file or folder.")] = Path(
        "runs/reproduction"
    ),
    records: Annotated[
        Path | None,
        typer.Option(help="Use this folder of compact records."),
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Make a GPU's results equal bit for bit in any stack; slower.",
        ),
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show cells and core-hours; train nothing.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show what there is to run.")] = False,
) -> None:
    """Regenerate the paper's tables and figures on one page.

    What has run is kept in --out: the same command continues where it was stopped. 'fedwatt
    reproduce verify' runs committed records again and compares.
    """
    from reproduction.catalogue import select
    from reproduction.lab import Lab
    from reproduction.progress import plan_table
    from reproduction.scale import scale_of
    from reproduction.study import setting_for

    if list_:
        console.print(_listed())
        return
    chosen = select(studies or ["all"])
    size = replace(scale_of(scale), deterministic=deterministic)
    sources = _sources(recordings)
    setting = setting_for(size, sources, dataset or ())
    lab = Lab(size, out / size.name, sources, device, records)
    if plan:
        console.print(plan_table(lab, setting, chosen))
    else:
        _run(lab, setting, chosen)


def _sources(recordings: list[Path] | None) -> "Sources":
    """Return the recorded fleets in `recordings`, or in $FEDWATT_DATA."""
    from reproduction.data import find_sources, usual_folder

    usual = usual_folder()
    return find_sources(recordings or ([usual] if usual is not None else []))


def _run(lab: "Lab", setting: "Setting", chosen: "Sequence[Study]") -> None:
    """Train what is missing, keep it, and write the page."""
    from reproduction.page import write_page
    from reproduction.progress import CellProgress

    cells = [cell for study in chosen for cell in study.cells(setting)]
    try:
        with CellProgress(console, cells, lab) as view:
            lab.run(cells, view)
    except KeyboardInterrupt:
        errors.print("Stopped. Finished cells are kept: the same command continues.")
        raise typer.Exit(130) from None
    finally:
        lab.save(setting)
    page = write_page(lab, setting, chosen, lab.out / "report.html")
    console.print(f"Report: {page}")


def report(
    records: Annotated[Path, typer.Option(help="Use this folder of compact records.")] = Path(
        "results/reproduction"
    ),
    out: Annotated[Path, typer.Option(help="Write to this file or folder.")] = Path(
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

    scale = scale_of_records(records)
    if not scale:
        raise RunError(f"{records} holds no records. Run this in a clone, or give --records.")
    with TemporaryDirectory() as scratch:
        lab = Lab(scale_of(scale), Path(scratch), records=records)
        page = write_page(lab, setting_of(lab), list(STUDIES.values()), out)
    console.print(f"Report: {page}")


def verify(
    cells: Annotated[int, typer.Option(help="Set the number of cells to run again.", min=1)] = 3,
    seed: Annotated[
        int | None,
        typer.Option(help="Set the seed of all random draws. [default: another each time]"),
    ] = None,
    max_cell_minutes: Annotated[
        float, typer.Option(help="Leave out cells that would take more minutes than this here.")
    ] = 30.0,
    records: Annotated[Path, typer.Option(help="Use this folder of compact records.")] = Path(
        "results/reproduction"
    ),
    recordings: Recordings = None,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="Write to this file or folder.")] = Path(
        "runs/reproduction"
    ),
) -> None:
    """Run cells of the records again, drawn at random, and compare every number.

    On the same kind of machine, with the same engine version and libraries, they must agree to the
    last bit; otherwise within a tolerance that is printed. Ends with status 1 if one does not.
    """
    from reproduction.lab import Lab
    from reproduction.record import read_records, scale_of_records
    from reproduction.scale import scale_of
    from reproduction.verify import Check, drawn, verified

    known_records = read_records(records)
    if not known_records:
        raise RunError(f"{records} holds no records. Name their folder with --records.")
    scale = scale_of(scale_of_records(records))
    lab = Lab(scale, out / scale.name, _sources(recordings), device)
    seed = secrets.randbelow(2**32) if seed is None else seed
    draw = drawn(lab, known_records, seed, 60 * max_cell_minutes)
    console.print(_drawn_from(draw, len(known_records), seed), highlight=False, soft_wrap=True)
    checks: list[Check] = []
    with console.status("") as status:

        def follow(done: int, rounds: int) -> None:
            status.update(f"cell {len(checks) + 1} of {cells}, round {done} of {rounds}")

        for outcome in verified(lab, known_records, draw, cells, follow):
            if isinstance(outcome, Check):
                checks.append(outcome)
            else:
                console.print(f"Passed over {outcome}.", highlight=False, soft_wrap=True)
    if not checks:
        raise RunError("No record can be verified here; the reasons stand above.")
    console.print(verdict_table(checks))
    if any(check.faults for check in checks):
        raise typer.Exit(1)


def verdict_table(checks: "list[Check]") -> Table:
    """Return a row for each cell that was run again."""
    from reproduction.progress import describe
    from reproduction.verify import MEAN_WH

    table = Table(title="Records, run again", caption=_note())
    for name in ("Cell", "Compared", "Numbers", "Largest difference", "Seconds", "Verdict"):
        right = name in ("Numbers", "Largest difference", "Seconds")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for check in checks:
        how = f"within {MEAN_WH} Wh ({', '.join(check.differences)})"
        table.add_row(
            describe(check.cell),
            how if check.differences else "bit for bit",
            f"{check.numbers:,}",
            f"{check.largest:.3g} Wh",
            f"{check.seconds:,.0f}",
            "differs: " + "; ".join(check.faults) if check.faults else "equal",
        )
    return table


def _note() -> str:
    from reproduction.verify import MEAN_WH, SEED_WH

    return (
        "Bit for bit: all numbers at the single precision of the records. Otherwise: participants "
        f"and steps are the same, and the last errors within {MEAN_WH} Wh on average over several "
        f"seeds, {SEED_WH} Wh in each; in brackets what differs from the record's engine and "
        "machine. The largest difference is that of a seed's last test RMSE."
    )


def _drawn_from(draw: "Draw", records: int, seed: int) -> str:
    lines = [f"{len(draw.keys)} of {records} records can be run again here (--seed {seed})."]
    lines += [f"Not considered: {count} {reason}." for reason, count in draw.refused.items()]
    return "\n".join(lines)


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
