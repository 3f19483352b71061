"""`fedwatt run`: train methods on a fleet and write a run folder with its report."""

from pathlib import Path
from typing import Annotated

import typer

from fedwatt.cli.configure import configuration, folder_for, stored_or
from fedwatt.cli.console import console, errors
from fedwatt.cli.progress import observer_for, results_table
from fedwatt.report import write_report
from fedwatt.runs import execute


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
    personalise: Annotated[
        bool,
        typer.Option("--personalise", help="Each vehicle fine-tunes the model for itself at last."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue what an interrupted run left in --out.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; by default a new one below runs/.")
    ] = None,
) -> None:
    """Train one or several methods on a fleet and write a run folder with a report."""
    out = folder_for(out, resume)
    chosen = configuration(
        stored_or(config, out, resume),
        methods=method,
        options={
            ("training", "rounds"): rounds,
            ("training", "participation"): participation,
            ("fleet", "vehicles"): vehicles,
            ("fleet", "data"): data,
            ("personal", "enabled"): True if personalise else None,
        },
        seeds=seeds,
        device=device,
        assignments=assignments,
    )
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
