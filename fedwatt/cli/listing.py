"""`fedwatt list`: methods, models, targets, features and readers, plug-ins included."""

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fedwatt.cli.console import Json, console, plain_table, print_json
from fedwatt.errors import FedwattError

Name = Annotated[
    str | None,
    typer.Argument(help="Method or composition to describe, such as fractional+scaffold."),
]


def list_parts(name: Name = None, as_json: Json = False) -> None:
    """List methods, models and other parts, or describe one method."""
    if name is not None:
        description = describe_method(name)
        print_json(description) if as_json else console.print(_method_table(name, description))
        return
    methods = _methods()
    parts = _parts()
    plugins = [*_plugins()]
    if as_json:
        print_json({"methods": methods, "parts": parts, "plugins": plugins})
        return
    console.print(plain_table(("Method", ""), methods.items()))
    console.print()
    console.print(plain_table(("Kind", "Names"), [(k, ", ".join(v)) for k, v in parts.items()]))
    if plugins:
        console.print(plain_table((*plugins[0],), [entry.values() for entry in plugins]))
    console.print("Compositions such as fractional+scaffold or fedprox@krum+yogi are methods.")
    console.print("'fedwatt list NAME' describes a method; ./file.py:name is code in a file.")


def _methods() -> dict[str, str]:
    """Map each named method to its summary."""
    from fedwatt.methods import METHODS
    from fedwatt.methods.catalogue import recipe

    return {name: recipe(name).summary for name in METHODS}


def _parts() -> dict[str, list[str]]:
    """Map each kind of part that fedwatt has to its names."""
    from fedwatt.methods.catalogue import DEFENCES, LOCAL_RULES, SERVERS
    from fedwatt.models import MODELS
    from fedwatt.telemetry.importing import USUAL_CLEANING
    from fedwatt.windows import FEATURE_SETS, FEATURES
    from fedwatt.windows.targets import TARGETS

    return {
        "local rule": [*LOCAL_RULES],
        "defence": [*DEFENCES],
        "server": [*SERVERS],
        "model": [*MODELS],
        "target": [*TARGETS],
        "feature": [*FEATURE_SETS, *FEATURES],
        "reader": [*USUAL_CLEANING],
    }


def _plugins() -> Iterator[dict[str, str]]:
    """Yield the parts that installed packages add."""
    from fedwatt.methods import METHODS
    from fedwatt.plugins import GROUPS, entry_points, resolve

    for kind in GROUPS:
        for name in entry_points(kind):
            entry = {"kind": kind, "name": name, "from": "", "summary": ""}
            try:
                plugin = resolve(name, kind, "anything", lambda value: True)
            except FedwattError as error:  # one broken package does not hide the others
                yield entry | {"summary": str(error)}
                continue
            hidden = kind == "method" and name in METHODS
            summary = "hidden by fedwatt's method of this name" if hidden else plugin.summary
            yield entry | {"from": plugin.origin, "summary": summary}


def describe_method(name: str) -> dict[str, Any]:
    """Return the parts, costs, records and hyperparameters of a method."""
    from fedwatt.methods import METHODS, get
    from fedwatt.methods.catalogue import recipe
    from fedwatt.methods.method import costs
    from fedwatt.models import get_model
    from fedwatt.plugins import parts, refers, resolve
    from fedwatt.tuning.tune import RATE

    method = get(name)
    cost = costs(method, get_model("mlp", window=60, features=8))
    meanings = dict(_meanings())
    ranges: dict[str, Any] = {}
    for rule in method.rules:
        meanings |= rule.meanings
        ranges |= rule.ranges
    plugins = [part for part in parts(name) if part not in METHODS and refers(part, "method")]
    settings: dict[str, Any] = {
        "learning_rate": {"default": "training.learning_rate", "tuned": str(RATE)}
    }
    for setting, default in method.settings.items():
        settings[setting] = {"default": default}
        if setting in ranges:
            settings[setting]["tuned"] = str(ranges[setting])
        if setting in meanings:
            settings[setting]["meaning"] = meanings[setting]
    return {
        "summary": recipe(name).summary,
        "made of": method.composition,
        "from": [resolve(part, "method").origin for part in plugins],
        "numbers": {
            "of a model": cost.weights,
            "sent to a vehicle": cost.down,
            "sent by a vehicle": cost.up,
            "stored in a vehicle": cost.vehicle,
            "stored by the server": cost.server,
        },
        "records": {column.name: column.meaning for column in method.records},
        "settings": settings,
    }


def _method_table(name: str, description: dict[str, Any]) -> Table:
    numbers = description["numbers"]

    def models(key: str) -> str:
        count = numbers[key]
        return f"{count / numbers['of a model']:.2f} models" if count > 99 else f"{count} numbers"

    title = Text.assemble((name, "bold"), f"  {description['summary']}")
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    table.add_row("made of", description["made of"])
    if description["from"]:
        table.add_row("from", ", ".join(description["from"]))
    exchange = f"{models('sent to a vehicle')} down, {models('sent by a vehicle')} up"
    table.add_row("sent", f"{exchange}, per vehicle and round")
    storage = f"{models('stored in a vehicle')} per vehicle"
    table.add_row("stored", f"{storage}, {models('stored by the server')} by the server")
    if description["records"]:
        columns = "; ".join(f"{name}, {text}" for name, text in description["records"].items())
        table.add_row("records", f"per vehicle and round: {columns}")
    for setting, facts in description["settings"].items():
        tuned = f"; tuned from {facts['tuned']}" if "tuned" in facts else ""
        meaning = f". {facts['meaning']}" if "meaning" in facts else ""
        table.add_row(setting, f"{facts['default']}{tuned}{meaning}")
    return table


@cache
def _meanings() -> dict[str, str]:
    """Map each hyperparameter of fedwatt to its meaning."""
    import fedwatt.methods

    file = Path(fedwatt.methods.__file__).with_name("hyperparameters.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))
