"""`fedwatt audit`: attack the vehicles of a run, and show what each level gives away."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedwatt.cli.console import console

if TYPE_CHECKING:
    from fedwatt.audit import Card


def audit(
    run: Annotated[Path, typer.Argument(help="A run folder; its configuration names the data.")],
    data: Annotated[
        Path | None, typer.Option(help="The fleet's folder, if it is another than the run's.")
    ] = None,
    vehicles: Annotated[int, typer.Option(help="Vehicles to attack, the first ones; 0: all.")] = 0,
    small: Annotated[
        bool, typer.Option("--small", help="Fewer windows, inputs and rounds: a minute.")
    ] = False,
) -> None:
    """Attack the vehicles of a run with its windows; writes RUN/audit.json."""
    from dataclasses import replace

    from fedwatt.audit import attack_fleet
    from fedwatt.data import synthetic_fleet
    from fedwatt.data.store import load_fleet, read_vehicle, vehicle_folders
    from fedwatt.runs.config import from_tables, read_config

    config = from_tables(read_config(run / "config.toml"))
    source = config.fleet
    settings = replace(config.data, features="base") if "terrain" in config.data.features else (
        config.data
    )  # fmt: skip
    telemetry = []
    folder = data or (None if source.data == "synthetic" else Path(source.data))
    if folder is None:
        fleet = synthetic_fleet(source.vehicles or 20, source.seed, settings)
    else:
        fleet = load_fleet(folder, settings)
        telemetry = [read_vehicle(one) for one in vehicle_folders(folder)]
    if vehicles:
        fleet = replace(fleet, clients=fleet.clients[:vehicles], mapped=None)
    with console.status("Attacking ...") as status:
        card = attack_fleet(
            fleet,
            telemetry[:vehicles] if vehicles else telemetry,
            inputs=16 if small else 0,
            windows=20 if small else 100,
            rounds=1 if small else 5,
            victims=1 if small else 3,
            say=lambda attack: status.update(f"Attacking: {attack} ..."),
        )
    (run / "audit.json").write_text(json.dumps(card.table(), indent=2, ensure_ascii=False) + "\n")
    show(card)
    console.print(f"Figures: {run / 'audit.json'}; what they mean: docs/privacy.md.")


def show(card: "Card") -> None:
    """Both tables of a report card."""
    from fedwatt.audit.card import MEASURES
    from fedwatt.audit.victims import GUESS, LEVELS

    table = Table("attack", *LEVELS, GUESS, "figure", box=None, pad_edge=False)
    for name, own in card.attacks.items():
        figures = (f"{own[level]:.3g}" for level in (*LEVELS, GUESS))
        table.add_row(name, *figures, MEASURES[name])
    console.print(table)
    levels = list(next(iter(card.poisoning.values())))
    table = Table("poisoning, test RMSE in Wh", *levels, box=None, pad_edge=False)
    for name, own in card.poisoning.items():
        table.add_row(name, *(f"{own[level]:.4g}" for level in levels))
    console.print(table)
