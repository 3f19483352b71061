"""Commands of the packages beside the library, which only a checkout of the repository has."""

from importlib import import_module
from importlib.util import find_spec
from typing import Final

import typer

from fedwatt.errors import RunError

PACKAGES: Final = {
    "compare": "comparison",
    "reproduce": "reproduction",
    "bench": "benchmarks",
}
"""Command → top-level package of the repository; its module `cli` adds the command."""


def mount(app: typer.Typer, command: str, package: str) -> None:
    """Add the command of `package`, or one that says how to get it where it is not installed."""
    if find_spec(package) is not None and find_spec(f"{package}.cli") is not None:
        import_module(f"{package}.cli").add_to(app)
        return

    @app.command(
        command,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def missing() -> None:
        """Only in a checkout of fedwatt's repository, after 'make setup'."""
        raise RunError(
            f"'fedwatt {command}' belongs to fedwatt's repository, not to the installed library: "
            "clone the repository, run 'make setup' in it and use its .venv/bin/fedwatt."
        )
