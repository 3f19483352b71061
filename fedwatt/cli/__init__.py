"""The command line: one file a command; each parses, calls and shows."""

import signal
import sys
from typing import Annotated

import typer
from rich.text import Text

from fedwatt import __version__
from fedwatt.cli import (
    data,
    deploy,
    elevation,
    export,
    inspect,
    methods,
    plugins,
    predict,
    report,
    route,
    run,
    serve,
    tune,
    watch,
)
from fedwatt.cli.console import console, errors
from fedwatt.cli.repository import PACKAGES, mount
from fedwatt.errors import FedwattError, needs_extra

app = typer.Typer(
    name="fedwatt",
    help="Learn energy models of electric vehicles across a fleet, without moving anybody's data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("tune")(tune.tune)
app.command("methods")(methods.methods)
app.command("plugins")(plugins.plugins)
app.command("report")(report.report)
app.command("watch")(watch.watch)
app.command("export")(export.export)
app.command("predict")(predict.predict)
app.command("route")(route.route)
app.command("inspect")(inspect.inspect)
app.command("serve")(serve.serve)
app.add_typer(data.app, name="data")
app.add_typer(elevation.app, name="elevation")
app.add_typer(deploy.app, name="deploy")
for command, package in PACKAGES.items():
    mount(app, command, package)


def say_version(asked: bool) -> None:
    """Print the version and end, if that is what was asked for."""
    if asked:
        console.print(f"fedwatt {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=say_version, is_eager=True),
    ] = False,
) -> None:
    """Options of fedwatt itself, before any command."""


def main() -> None:
    """Entry point: what the user can put right is one sentence, not a traceback."""
    # A service manager stops a run as Ctrl-C does: cleanly, with a checkpoint.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except (FedwattError, ModuleNotFoundError) as error:
        sentence = needs_extra(error) if isinstance(error, ModuleNotFoundError) else str(error)
        if not sentence:
            raise
        errors.print(Text.assemble(("Error: ", "bold red"), sentence), soft_wrap=True)
        sys.exit(2)
