"""`fedwatt methods`: every method, its composition, cost, hyperparameters and their ranges."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedwatt.cli.console import console
from fedwatt.errors import FedwattError


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Only this one, or a composition such as 'fractional+scaffold' or 'fedavg@krum', "
            "or one of your own such as './sam.py:sam'.",
            metavar="[NAME]",
        ),
    ] = None,
) -> None:
    """List the methods: what they are made of, send and keep, and what is tuned in which range."""
    from fedwatt import plugins
    from fedwatt.methods import METHODS

    for method_name in [name] if name is not None else METHODS:
        console.print(_table(method_name))
        console.print()
    if name is not None:
        return
    for other in plugins.entry_points("method"):
        try:
            hidden = (
                f"That of {plugins.resolve(other, 'method').origin} is hidden by fedwatt's own."
            )
            console.print(_title(other, hidden) if other in METHODS else _table(other))
        except FedwattError as error:  # one broken package does not hide the others
            console.print(_title(other, str(error)))
        console.print()
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
    from fedwatt.methods import METHODS, get
    from fedwatt.methods.catalogue import recipe
    from fedwatt.methods.costs import costs
    from fedwatt.models import get_model
    from fedwatt.plugins import parts, refers, resolve
    from fedwatt.tuning.ranges import RATE

    method = get(name)
    meanings = dict(_meanings())
    for rule in method.rules:
        meanings |= rule.meanings
    cost = costs(method, get_model("mlp", window=60, features=8))

    def models(numbers: int) -> str:
        return f"{numbers / cost.weights:.2f} models" if numbers > 99 else f"{numbers} numbers"

    table = _headed(name, recipe(name).summary)
    table.add_row("made of", method.composition)
    if plugin_parts := [
        part for part in parts(name) if part not in METHODS and refers(part, "method")
    ]:
        table.add_row("from", ", ".join(resolve(part, "method").origin for part in plugin_parts))
    table.add_row("sent", f"{models(cost.down)} down and {models(cost.up)} up, a vehicle and round")
    storage = f"{models(cost.vehicle)} on a vehicle, {models(cost.server)} on the server"
    table.add_row("kept", storage)
    if method.records:
        columns = "; ".join(f"{column.name}, {column.meaning}" for column in method.records)
        table.add_row("records", f"of each vehicle and round: {columns}")
    ranges = {
        setting: tuning_range
        for rule in method.rules
        for setting, tuning_range in rule.ranges.items()
    }
    table.add_row("learning_rate", f"training.learning_rate; tuned from {RATE}")
    for setting, default in method.settings.items():
        tuned = f"; tuned from {ranges[setting]}" if setting in ranges else ""
        meaning = f". {meanings[setting]}" if setting in meanings else ""
        table.add_row(setting, f"{default!r}{tuned}{meaning}")
    return table


@cache
def _meanings() -> dict[str, str]:
    """Hyperparameter → what it means, for those of fedwatt."""
    import fedwatt.methods

    file = Path(fedwatt.methods.__file__).with_name("hyperparameters.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _title(name: str, summary: str) -> Text:
    return Text.assemble((name, "bold"), f"  {summary}")


def _headed(name: str, summary: str) -> Table:
    title = _title(name, summary)
    return Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
