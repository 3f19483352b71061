"""`fedwatt tournament`: every method on every fleet, tuned alike."""

from math import inf
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedwatt.cli.configure import Ray
from fedwatt.cli.console import console, errors
from fedwatt.errors import SettingError


def tournament(
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only matches with all of these words, such as 'ved hills scaffold'."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="A stored fleet: ved=FOLDER or electrified=FOLDER; repeat for both."),
    ] = None,
    trials: Annotated[int, typer.Option(help="Settings tried of every method.")] = 20,
    seeds: Annotated[int, typer.Option(help="Seeds of results; trials have others.")] = 5,
    rounds: Annotated[int, typer.Option(help="Rounds of trials and results.")] = 60,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    processes: Annotated[int, typer.Option(help="Matches played at a time.")] = 1,
    minutes: Annotated[float, typer.Option(help="Begin no match later than this.")] = inf,
    out: Annotated[Path, typer.Option(help="Folder for windows and finished matches.")] = Path(
        "runs/tournament"
    ),
    unrecorded: Annotated[
        bool,
        typer.Option(
            "--unrecorded", help="Only what results/comparison.jsonl lacks, or has not tuned out."
        ),
    ] = False,
    ray: Ray = None,
    page: Annotated[
        bool,
        typer.Option(
            "--page", help="Play nothing: put what was played into results/ and write the page."
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Play nothing: see that the page is what records give.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show who plays where.")] = False,
) -> None:
    """Play every method on every fleet, without and with hills, tuned alike.

    What was played is kept in --out: the same command goes on where it was stopped.
    """
    from comparison.plan import Plan
    from comparison.records import RECORDS, read_records
    from comparison.season import Venue, hold, matches, missing

    if list_:
        _show_list()
        return
    if page or check:
        _judge(out, write=page)
        return
    plan = Plan(trials=trials, rounds=rounds, seeds=tuple(range(1, seeds + 1)))
    venue = Venue(out, _stored(data or []), device, processes, ray, minutes)
    chosen = matches(plan, only or ())
    chosen = missing(chosen, read_records(RECORDS)) if unrecorded else chosen
    try:
        hold(chosen, venue, lambda text: console.print(text, highlight=False))
    except KeyboardInterrupt:
        errors.print("Stopped. Finished matches are kept: the same command continues.")
        raise typer.Exit(130) from None


def _judge(out: Path, *, write: bool) -> None:
    """Write the page from the records, or see that it is what they give."""
    from comparison.costs import costed_today
    from comparison.page import PAGE, write_page
    from comparison.records import RECORDS, gathered, read_records, write_records
    from fedwatt.files import write_text

    if write:
        before = [own.content for own in read_records(RECORDS).values()]
        write_records(RECORDS, map(costed_today, [*before, *gathered(out / "cells")]))
    text = write_page(read_records(RECORDS))
    if write:
        write_text(PAGE, text)
        console.print(f"{PAGE} is written from {RECORDS}.", highlight=False)
    elif text != PAGE.read_text(encoding="utf-8"):
        errors.print(f"{PAGE} is not what {RECORDS} gives: 'fedwatt tournament --page' writes it.")
        raise typer.Exit(1)


def _stored(given: list[str]) -> dict[str, Path]:
    """Folders of stored fleets by name."""
    found = {}
    for one in given:
        name, equals, folder = one.partition("=")
        if name not in ("ved", "electrified") or not equals:
            raise SettingError(f"'{one}' is not ved=FOLDER or electrified=FOLDER.")
        found[name] = Path(folder)
    return found


def _show_list() -> None:
    from comparison.entries import ENTRIES
    from comparison.fleets import ARENAS

    table = Table(title="Arenas")
    for name in ("Arena", "Vehicles", "Newcomers", "Not played, because"):
        table.add_column(name, overflow="fold")
    for arena in ARENAS.values():
        table.add_row(arena.name, arena.about, str(arena.newcomers), arena.impossible)
    console.print(table)
    console.print(f"{len(ENTRIES)} entries on each: {', '.join(ENTRIES)}", highlight=False)


def add_to(app: typer.Typer) -> None:
    """Make this a command of `fedwatt`."""
    app.command("tournament")(tournament)
