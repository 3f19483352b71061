"""`fedwatt methods`: every method, its composition, cost, hyperparameters and their ranges."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedwatt.cli.console import console


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Only this one, or a composition such as 'fractional+scaffold' or 'fedavg@krum'.",
            metavar="[NAME]",
        ),
    ] = None,
) -> None:
    """List the methods: what they are made of, send and keep, and what is tuned in which range."""
    from fedwatt.methods import METHODS

    for known in [name] if name is not None else METHODS:
        console.print(_table(known))
        console.print()
    if name is None:
        console.print(_parts())


def _parts() -> Table:
    from fedwatt.methods.catalogue import DEFENCES, LOCAL_RULES, SERVERS

    table = _headed(
        "compositions",
        "Methods and local rules joined by +, then @ with a defence, a server or both: "
        "fractional+scaffold, fo-ri-fedavg@adam, fedprox@krum+yogi.",
    )
    table.add_row("local rules", ", ".join(LOCAL_RULES))
    table.add_row("defences", ", ".join(DEFENCES))
    table.add_row("servers", ", ".join(SERVERS))
    return table


def _table(name: str) -> Table:
    from fedwatt.methods import get
    from fedwatt.methods.catalogue import recipe
    from fedwatt.methods.costs import costs
    from fedwatt.models import get_model
    from fedwatt.studies.ranges import ranges_of

    method = get(name)
    cost = costs(method, get_model("mlp", window=60, features=8))

    def models(numbers: int) -> str:
        return f"{numbers / cost.weights:.2f} models" if numbers > 99 else f"{numbers} numbers"

    table = _headed(name, recipe(name).summary)
    table.add_row("made of", method.composition)
    table.add_row("sent", f"{models(cost.down)} down and {models(cost.up)} up, a vehicle and round")
    kept = f"{models(cost.vehicle)} on a vehicle, {models(cost.server)} on the server"
    table.add_row("kept", kept)
    ranges = ranges_of(method)
    table.add_row("rate", f"training.rate; tuned from {ranges['rate']}")
    for setting, default in method.settings.items():
        tuned = f"; tuned from {ranges[setting]}" if setting in ranges else ""
        table.add_row(setting, f"{default!r}{tuned}")
    return table


def _headed(name: str, about: str) -> Table:
    title = Text.assemble((name, "bold"), f"  {about}")
    return Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
