"""`fedwatt inspect`: the model card of a model file."""

from pathlib import Path

from rich.padding import Padding
from rich.table import Table

from fedwatt.cli.console import Json, console, print_json, write_page
from fedwatt.cli.options import Html, ModelName


def inspect(
    model: ModelName,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Show a model's training data, errors, inputs and limits."""
    from fedwatt.edge.card import render, sections
    from fedwatt.edge.energy_model import read_card
    from fedwatt.edge.pretrained import PRETRAINED, pretrained_card

    card = pretrained_card(model) if model in PRETRAINED else sections(read_card(Path(model)))
    if as_json:
        print_json({title: [[name, value] for name, value in rows] for title, rows in card})
    for title, rows in () if as_json else card:
        console.print(title, style="bold")
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", min_width=22)
        table.add_column()
        for name, value in rows:
            if name:
                table.add_row(f"  {name}", value)
            else:
                console.print(Padding(value, (0, 0, 0, 2)))
        console.print(table)
    if html is not None:
        write_page(html, render(card, model))
