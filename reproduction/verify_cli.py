"""`fedwatt reproduce verify`: committed records, run again."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedwatt.cli.console import console
from fedwatt.errors import RunError

if TYPE_CHECKING:
    from reproduction.verify import Check, Draw


def verify(
    cells: Annotated[int, typer.Option(help="How many cells to run again.", min=1)] = 3,
    seed: Annotated[
        int | None, typer.Option(help="Of the draw; by default another one each time.")
    ] = None,
    minutes: Annotated[
        float, typer.Option(help="Leave out cells that would take longer than this here.")
    ] = 30.0,
    records: Annotated[Path, typer.Option(help="Folder of committed records.")] = Path(
        "results/reproduction"
    ),
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder with files of VED or eVED, or a fleet made by 'fedwatt data'; repeat for "
            "several. By default $FEDWATT_DATA."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    out: Annotated[Path, typer.Option(help="Folder for fleets that are imported.")] = Path(
        "runs/reproduction"
    ),
) -> None:
    """Run cells of the committed records again, drawn at random, and compare every number.

    On the same kind of machine, with the same engine version and libraries, they must agree to the
    last bit; otherwise within a tolerance that is printed. Ends with status 1 if one does not.
    """
    from reproduction.data import find_sources, usual_folder
    from reproduction.lab import Lab
    from reproduction.record import read_records, scale_of_records
    from reproduction.scale import scale_of
    from reproduction.verify import Check, drawn, verified

    known_records = read_records(records)
    if not known_records:
        raise RunError(f"{records} holds no records. Name their folder with --records.")
    usual = usual_folder()
    sources = find_sources(data or ([usual] if usual is not None else []))
    scale = scale_of(scale_of_records(records))
    lab = Lab(scale, out / scale.name, sources, device)
    seed = secrets.randbelow(2**32) if seed is None else seed
    draw = drawn(lab, known_records, seed, 60 * minutes)
    console.print(_drawn_from(draw, len(known_records), seed), highlight=False, soft_wrap=True)
    checks: list[Check] = []
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("")

        def follow(done: int, rounds: int) -> None:
            what = f"cell {len(checks) + 1} of {cells}, round {done} of {rounds}"
            progress.update(task, description=what, completed=done, total=rounds)

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
        f"and steps are the same, and the last errors within {MEAN_WH} Wh in the mean over several "
        f"seeds, {SEED_WH} Wh in each; in brackets what differs from the record's engine and "
        "machine. The largest difference is that of a seed's last test RMSE."
    )


def _drawn_from(draw: "Draw", records: int, seed: int) -> str:
    lines = [f"{len(draw.keys)} of {records} records can be run again here (--seed {seed})."]
    lines += [f"Not considered: {count} {reason}." for reason, count in draw.refused.items()]
    return "\n".join(lines)
