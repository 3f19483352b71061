"""The command line: each command parses, calls the library and prints."""

import signal
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from rich.text import Text

from fedwatt import __version__
from fedwatt.cli import (
    data,
    deploy,
    elevation,
    export,
    inspect,
    listing,
    predict,
    results,
    route,
    run,
    serve,
    tune,
)
from fedwatt.cli.console import Panels, console, errors
from fedwatt.errors import FedwattError, needs_extra

TRAIN = "Train"
PREDICT = "Predict"
DATA = "Data"
DEPLOY = "Deploy"
ANALYSE = "Analyse"
MAINTAIN = "Maintain (in a checkout of fedwatt's repository)"
PACKAGES = {
    "compare": "comparison",
    "reproduce": "reproduction",
    "bench": "benchmarks",
}
"""Command → top-level package of the repository; its module `cli` adds the command."""

app = typer.Typer(
    name="fedwatt",
    cls=Panels,
    help="Learn energy models across a fleet of electric vehicles; trips stay in place.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", rich_help_panel=TRAIN)(run.run)
app.command("tune", rich_help_panel=TRAIN)(tune.tune)
app.command("export", rich_help_panel=PREDICT)(export.export)
app.command("adapt", rich_help_panel=PREDICT)(export.adapt)
app.command("predict", rich_help_panel=PREDICT)(predict.predict)
app.command("route", rich_help_panel=PREDICT)(route.route)
app.command("inspect", rich_help_panel=PREDICT)(inspect.inspect)
app.command("serve", rich_help_panel=PREDICT)(serve.serve)
app.add_typer(
    data.app,
    name="data",
    rich_help_panel=DATA,
    help="Make fleets: import, generate, change and describe them.",
)
app.add_typer(
    elevation.app,
    name="elevation",
    rich_help_panel=DATA,
    help="Learn elevation maps, draw and compare them.",
)
app.add_typer(
    deploy.app, name="deploy", rich_help_panel=DEPLOY, help="Train on connected vehicles."
)
app.command("report", rich_help_panel=ANALYSE)(results.report)
app.add_typer(
    results.runs_app,
    name="runs",
    rich_help_panel=ANALYSE,
    help="List runs, compare and delete them.",
)
app.command("watch", rich_help_panel=ANALYSE)(results.watch)
app.command("list", rich_help_panel=ANALYSE)(listing.list_parts)


def mount(command: str, package: str) -> None:
    """Add the command of `package` where that package of the repository is importable."""
    if find_spec(package) is None or find_spec(f"{package}.cli") is None:
        return
    import_module(f"{package}.cli").add_to(app)
    registered: list[Any] = [*app.registered_commands, *app.registered_groups]
    for added in registered:
        if added.name == command:
            added.rich_help_panel = MAINTAIN


for command, package in PACKAGES.items():
    mount(command, package)


def print_version(requested: bool) -> None:
    """Print the version and end, if that is requested."""
    if requested:
        console.print(f"fedwatt {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=print_version, is_eager=True),
    ] = False,
) -> None:
    """Handle the options of fedwatt itself, before any command."""


def main() -> None:
    """Run the command line; an error that the user can correct is one sentence."""
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
