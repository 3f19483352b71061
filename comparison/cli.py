"""`fedwatt compare`: every method on every fleet, tuned alike."""

from math import inf
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedwatt.cli.console import console, errors
from fedwatt.cli.options import Ray
from fedwatt.errors import SettingError


def compare(
    only: Annotated[
        list[str] | None,
        typer.Option(help="Select runs with all of these words, such as 'ved elevation scaffold'."),
    ] = None,
    stored: Annotated[
        list[str] | None,
        typer.Option(help="Use a stored fleet: ved=FOLDER or electrified=FOLDER; repeatable."),
    ] = None,
    trials: Annotated[int, typer.Option(help="Set the trials of each method.")] = 20,
    seed_count: Annotated[
        int, typer.Option(help="Set the number of seeds of results; trials have others.")
    ] = 5,
    rounds: Annotated[int, typer.Option(help="Set the number of rounds.")] = 60,
    device: Annotated[str, typer.Option(help="Choose auto, cpu or cuda.")] = "auto",
    processes: Annotated[int, typer.Option(help="Set the number of runs at a time.")] = 1,
    max_minutes: Annotated[float, typer.Option(help="Begin no run after so many minutes.")] = inf,
    out: Annotated[Path, typer.Option(help="Write to this file or folder.")] = Path(
        "runs/comparison"
    ),
    unrecorded: Annotated[
        bool,
        typer.Option(
            "--unrecorded", help="Select what results/comparison.jsonl lacks, or has not tuned out."
        ),
    ] = False,
    ray: Ray = None,
    page: Annotated[
        bool,
        typer.Option(
            "--page", help="Add finished runs to results/ and write the pages; train nothing."
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(help="Write all results to this HTML file, sortable; train nothing."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check the pages against the records; train nothing.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show what there is to run.")] = False,
) -> None:
    """Compare every method on every dataset, tuned alike.

    Finished runs are kept in --out: the same command continues where it was stopped.
    """
    from comparison.plan import Plan
    from comparison.records import RECORDS, read_records
    from comparison.schedule import Workspace, missing, planned_runs, run_all

    if list_:
        _show_list()
        return
    if report is not None:
        _write_report(report)
        return
    if page or check:
        _write_pages(out, write=page)
        return
    plan = Plan(trials=trials, rounds=rounds, seeds=tuple(range(1, seed_count + 1)))
    workspace = Workspace(out, _stored(stored or []), device, processes, ray, max_minutes)
    chosen = planned_runs(plan, only or ())
    chosen = missing(chosen, read_records(RECORDS)) if unrecorded else chosen
    try:
        run_all(chosen, workspace, lambda text: console.print(text, highlight=False))
    except KeyboardInterrupt:
        errors.print("Stopped. Finished runs are kept: the same command continues.")
        raise typer.Exit(130) from None


def _write_report(file: Path) -> None:
    """Write the sortable HTML report of the committed records."""
    from comparison.records import RECORDS, read_records
    from comparison.report import report
    from fedwatt.files import write_text

    write_text(file, report(read_records(RECORDS)))
    console.print(f"{file} has all results of {RECORDS}.", highlight=False)


def _write_pages(out: Path, *, write: bool) -> None:
    """Write all that is written from the records, or exit 1 if a file is not what they give."""
    from comparison.candidates import CANDIDATES
    from comparison.costs import costed_today
    from comparison.evaluate import recommend
    from comparison.page import written
    from comparison.records import RECORDS, gathered, read_records, write_records
    from fedwatt.files import write_text
    from fedwatt.methods.catalogue import RECOMMENDED

    if write:
        before = [record.content for record in read_records(RECORDS).values()]
        contents = [*before, *gathered(out / "cells")]
        write_records(
            RECORDS,
            (costed_today(content) for content in contents if content["method"] in CANDIDATES),
        )
    records = read_records(RECORDS)
    stale = []
    for file, text in written(records).items():
        if write:
            write_text(file, text)
        elif text != file.read_text(encoding="utf-8"):
            stale.append(f"{file} is not what {RECORDS} gives: 'fedwatt compare --page' writes it.")
    if recommend(records) != RECOMMENDED:
        stale.append(
            f"The records recommend '{recommend(records)}', fedwatt/methods/catalogue.py "
            f"'{RECOMMENDED}': change it there."
        )
    for problem in stale:
        errors.print(problem)
    if stale:
        raise typer.Exit(1)
    console.print(f"Pages and {RECORDS} agree.", highlight=False)


def _stored(texts: list[str]) -> dict[str, Path]:
    """Return the folders of stored fleets by name."""
    folders = {}
    for option in texts:
        name, equals, folder = option.partition("=")
        if name not in ("ved", "electrified") or not equals:
            raise SettingError(f"'{option}' is not ved=FOLDER or electrified=FOLDER.")
        folders[name] = Path(folder)
    return folders


def _show_list() -> None:
    from comparison.candidates import CANDIDATES
    from comparison.datasets import DATASETS

    table = Table(title="Datasets")
    for name in ("Dataset", "Vehicles", "Unseen", "Not run, because"):
        table.add_column(name, overflow="fold")
    for dataset in DATASETS.values():
        table.add_row(dataset.name, dataset.description, str(dataset.unseen), dataset.impossible)
    console.print(table)
    console.print(f"{len(CANDIDATES)} methods on each: {', '.join(CANDIDATES)}", highlight=False)


def add_to(app: typer.Typer) -> None:
    """Make this a command of `fedwatt`."""
    app.command("compare")(compare)
