"""`fedwatt styles`: group the vehicles of a run by how they drive, if there are groups."""

from pathlib import Path
from typing import Annotated

import typer

from fedwatt.cli.configure import Trust
from fedwatt.cli.console import console, plain_table


def styles(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.", metavar="RUN")],
    method: Annotated[
        str | None, typer.Option(help="Method whose models are used; the run's first if left out.")
    ] = None,
    most: Annotated[int, typer.Option(help="Most styles to look for.", min=2)] = 6,
    fewest: Annotated[
        int, typer.Option(help="Fewest vehicles of a style; no sum of fewer is made.", min=2)
    ] = 3,
    trust: Trust = None,
) -> None:
    """Look for driving styles among a run's vehicles; writes RUN/styles.json.

    Vehicles are compared by what the trained models make of their driving, from sums over vehicles
    alone, and whatever is found is tested against chance and across seeds.
    """
    from fedwatt.report.styles import styles_table
    from fedwatt.runs.styles import write_styles
    from fedwatt.trained import load

    with console.status("Opening the fleet ...") as status:
        found = load(run, method=method).styles(
            most=most,
            fewest=fewest,
            on_seed=lambda seed: status.update(f"Looking with the model of seed {seed} ..."),
        )
    file = write_styles(run, found)
    shown = styles_table(found)
    console.print(found.sentence)
    console.print(plain_table([column.heading for column in shown.columns], shown.text_rows()))
    console.print(f"Vehicles: {file}. 'fedwatt report {run}' puts it on the page.")
