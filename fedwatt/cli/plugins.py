"""`fedwatt plugins`: models, targets, features and readers, those of other packages included."""

from collections.abc import Iterator

from rich.table import Table

from fedwatt.cli.console import console
from fedwatt.errors import FedwattError


def plugins() -> None:
    """List models, targets, features and readers by name, and what installed packages add to them.

    Methods have a list of their own: 'fedwatt methods'. Beside these names, a reference such as
    './net.py:Net' or 'mypackage.nets:Net' names anything that Python can load.
    """
    from fedwatt.plugins import GROUPS

    table = Table("kind", "name", "from", "", box=None, padding=(0, 2), pad_edge=False)
    for kind in GROUPS:
        built_in = ", ".join(_built_in(kind))
        if built_in:
            table.add_row(kind, built_in, "fedwatt", "")
        for row in _of_others(kind):
            table.add_row(kind, *row)
    console.print(table)


def _built_in(kind: str) -> list[str]:
    from fedwatt.models import MODELS
    from fedwatt.telemetry.importing import USUAL_CLEANING
    from fedwatt.windows import FEATURE_SETS, FEATURES
    from fedwatt.windows.targets import TARGETS

    names = {
        "model": [*MODELS],
        "target": [*TARGETS],
        "feature": [*FEATURE_SETS, *FEATURES],
        "reader": [*USUAL_CLEANING],
    }
    return names.get(kind, [])


def _of_others(kind: str) -> Iterator[tuple[str, str, str]]:
    """(name, where it comes from, what it is) of each entry point; a broken one says why."""
    from fedwatt.plugins import entry_points, resolve

    for name in entry_points(kind):
        try:
            plugin = resolve(name, kind, "anything", lambda value: True)
        except FedwattError as error:
            yield name, "", str(error)
        else:
            yield name, plugin.origin, plugin.summary
