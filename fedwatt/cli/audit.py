"""`fedwatt audit`: attack the vehicles of a run, and show what each level gives away."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedwatt.cli.console import console
from fedwatt.files import write_text

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
    """Attack the vehicles of a run with its windows; writes RUN/audit.json.

    Windows are those of the run: its vehicles, their trips and the split. Of a run with hills they
    are those of its level model, which are made without positions.
    """
    from dataclasses import replace

    from fedwatt.audit import attack_fleet
    from fedwatt.elevation.level import level_data
    from fedwatt.runs.config import from_tables, read_config
    from fedwatt.runs.source import open_fleet, source_vehicles
    from fedwatt.windows.features import feature_names, needs_climb

    config = from_tables(read_config(run / "config.toml"), str(run / "config.toml"))
    source = replace(config.fleet, data=str(data), vehicles=0) if data else config.fleet
    settings = config.data
    if needs_climb(feature_names(settings.features)):
        settings = level_data(settings) or replace(settings, features="base")
    fleet = open_fleet(replace(config, fleet=source, data=settings))
    if vehicles:
        fleet = replace(fleet, clients=fleet.clients[:vehicles], mapped=None)
    attacked = set(fleet.names)
    with console.status("Attacking ...") as status:
        card = attack_fleet(
            fleet,
            [one for one in source_vehicles(source) if one.name in attacked],
            inputs=16 if small else 0,
            windows=20 if small else 100,
            rounds=1 if small else 5,
            victims=1 if small else 3,
            say=lambda attack: status.update(f"Attacking: {attack} ..."),
        )
    figures = json.dumps(card.table(), indent=2, ensure_ascii=False)
    write_text(run / "audit.json", f"{figures}\n")
    show(card)
    console.print(f"Figures: {run / 'audit.json'}; what they mean: docs/privacy.md.")


def show(card: "Card") -> None:
    """Both tables of a report card."""
    from fedwatt.audit.card import MEASURES
    from fedwatt.audit.levels import GUESS, LEVELS

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
