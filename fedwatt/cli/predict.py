"""`fedwatt predict`: a recorded or planned trip through a model file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedwatt.cli.console import Json, console, print_json, write_page
from fedwatt.cli.options import Html, Trust
from fedwatt.cli.route import Capacity, Soc, parse_soc

if TYPE_CHECKING:
    from fedwatt.edge.trips import Forecast


def predict(
    model: Annotated[
        str, typer.Argument(help="Model file of 'fedwatt export' or 'fedwatt adapt'.")
    ],
    trip: Annotated[Path, typer.Argument(help="VEHICLE_FOLDER/TRIP of a fleet, or a CSV file.")],
    soc: Soc = None,
    capacity: Capacity = None,
    html: Html = None,
    as_json: Json = False,
    trust: Trust = None,
) -> None:
    """Predict a recorded trip: energy and state of charge on arrival."""
    from fedwatt.edge.trips import forecast
    from fedwatt.journeys.charge import usable_wh

    made = forecast(
        model,
        trip,
        soc=None if soc is None else parse_soc(soc),
        capacity_wh=None if capacity is None else usable_wh(capacity),
    )
    if as_json:
        facts = {name: value for name, value, *_ in made.rows()}
        print_json({"answer": made.answer(), **facts, "remarks": [*made.remarks()]})
    else:
        _show(made)
    if html is not None:
        from fedwatt.edge.trip_page import render

        write_page(html, render(made))


def _show(made: "Forecast") -> None:
    """Print the answer, the numbers behind it, and remarks."""
    console.print(f"{made.answer()}.", style="bold")
    table = Table(title=made.title, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for row in made.rows():
        table.add_row(*row)
    console.print(table)
    for sentence in made.remarks():
        console.print(sentence)
