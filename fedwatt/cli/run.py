"""`fedwatt run`: train methods on a fleet and write a run folder with its report."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from fedwatt.cli.console import console, errors
from fedwatt.cli.progress import observer_for, results_table
from fedwatt.report import write_report
from fedwatt.runs import execute
from fedwatt.runs.config import from_tables, override, read_config


def run(
    config: Annotated[
        Path | None, typer.Argument(help="TOML file; without it, the defaults.", metavar="[CONFIG]")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Method to train; repeat for several. 'fedwatt methods' lists all."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="'synthetic', or the folder of a fleet.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds, T.")] = None,
    vehicles: Annotated[
        int | None, typer.Option(help="Vehicles; 0: 20 synthetic ones, or all of a fleet.")
    ] = None,
    participation: Annotated[
        float | None, typer.Option(help="Share of available vehicles that train in a round, C.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, trained together in one stack, such as 1,2,3.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any other setting, such as training.rate=0.01 or fo-ri-fedavg.alpha=0.7.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue what an interrupted run left in --out.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; by default a new one below runs/.")
    ] = None,
) -> None:
    """Train one or several methods on a fleet and write a run folder with a report."""
    out = out or Path("runs") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
    stored = out / "config.toml"
    path = stored if config is None and resume and stored.exists() else config
    tables = read_config(path) if path is not None else {}
    options = {
        ("training", "rounds"): rounds,
        ("training", "participation"): participation,
        ("fleet", "vehicles"): vehicles,
        ("fleet", "data"): data,
    }
    for (section, setting), value in options.items():
        if value is not None:
            tables.setdefault(section, {})[setting] = value
    if method:
        tables["method"] = _methods(tables.get("method", []), method)
    if device is not None:
        tables["device"] = device
    if seeds is not None:
        tables["seeds"] = _seeds(seeds)
    chosen = from_tables(override(tables, assignments or []))

    observer = observer_for(console, len(chosen.methods))
    try:
        with observer:
            execute(chosen, out, observer, resume=resume)
    except KeyboardInterrupt:
        errors.print(
            f"Stopped. Completed rounds are kept; continue with: fedwatt run --resume --out {out}"
        )
        raise typer.Exit(130) from None
    console.print(results_table(out))
    console.print(f"Report: {write_report(out)}")


def _methods(configured: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """Tables of the methods called `names`; those of the configuration keep their settings."""
    known = {table.get("label", table.get("name")): table for table in configured}
    return [known.get(name, {"name": name}) for name in names]


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"'{text}' is not a list of whole numbers such as 1,2,3."
        ) from None
