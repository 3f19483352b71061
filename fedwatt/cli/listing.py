"""`fedwatt list`: methods, models, targets, features and readers, plug-ins included."""

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fedwatt.cli.console import Json, console, print_json
from fedwatt.errors import FedwattError

Name = Annotated[
    str | None,
    typer.Argument(help="Only this method or composition, such as fractional+scaffold, in full."),
]


def list_parts(name: Name = None, as_json: Json = False) -> None:
    """List methods, models, targets, features and readers, or describe one method."""
    if name is not None:
        description = describe_method(name)
        print_json(description) if as_json else console.print(_method_table(name, description))
        return
    entries = [*_method_entries(), *_other_entries()]
    if as_json:
        print_json(entries)
        return
    table = Table("kind", "name", "from", "", box=None, padding=(0, 2), pad_edge=False)
    for entry in entries:
        table.add_row(*entry.values())
    console.print(table)
    console.print("Compositions such as fractional+scaffold or fedprox@krum+yogi are methods.")
    console.print("'fedwatt list NAME' describes a method; ./file.py:name is code of your own.")


def _entry(kind: str, name: str, origin: str, summary: str) -> dict[str, str]:
    return {"kind": kind, "name": name, "from": origin, "summary": summary}


def _method_entries() -> Iterator[dict[str, str]]:
    """Yield the named methods, then the parts of compositions."""
    from fedwatt.methods import METHODS
    from fedwatt.methods.catalogue import DEFENCES, LOCAL_RULES, SERVERS, recipe

    for name in METHODS:
        yield _entry("method", name, "fedwatt", recipe(name).summary)
    for kind, names in (("local rule", LOCAL_RULES), ("defence", DEFENCES), ("server", SERVERS)):
        yield _entry(kind, ", ".join(names), "fedwatt", "")


def _other_entries() -> Iterator[dict[str, str]]:
    """Yield models, targets, features and readers, and what installed packages add to any kind."""
    from fedwatt.methods import METHODS
    from fedwatt.models import MODELS
    from fedwatt.plugins import GROUPS, entry_points, resolve
    from fedwatt.telemetry.importing import USUAL_CLEANING
    from fedwatt.windows import FEATURE_SETS, FEATURES
    from fedwatt.windows.targets import TARGETS

    built_in = {
        "model": [*MODELS],
        "target": [*TARGETS],
        "feature": [*FEATURE_SETS, *FEATURES],
        "reader": [*USUAL_CLEANING],
    }
    for kind in GROUPS:
        if kind in built_in:
            yield _entry(kind, ", ".join(built_in[kind]), "fedwatt", "")
        for name in entry_points(kind):
            try:
                plugin = resolve(name, kind, "anything", lambda value: True)
            except FedwattError as error:  # one broken package does not hide the others
                yield _entry(kind, name, "", str(error))
                continue
            hidden = kind == "method" and name in METHODS
            summary = "hidden by fedwatt's method of this name" if hidden else plugin.summary
            yield _entry(kind, name, plugin.origin, summary)


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
    for setting, about in description["settings"].items():
        tuned = f"; tuned from {about['tuned']}" if "tuned" in about else ""
        meaning = f". {about['meaning']}" if "meaning" in about else ""
        table.add_row(setting, f"{about['default']}{tuned}{meaning}")
    return table


@cache
def _meanings() -> dict[str, str]:
    """Map each hyperparameter of fedwatt to its meaning."""
    import fedwatt.methods

    file = Path(fedwatt.methods.__file__).with_name("hyperparameters.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))
