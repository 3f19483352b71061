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
COMMANDS: dict[str, dict[str, Any]] = {
    TRAIN: {"run": run.run, "tune": tune.tune},
    PREDICT: {
        "export": export.export,
        "adapt": export.adapt,
        "predict": predict.predict,
        "route": route.route,
        "inspect": inspect.inspect,
        "serve": serve.serve,
    },
    ANALYSE: {"report": results.report, "watch": results.watch, "list": listing.list_parts},
}
for panel, functions in COMMANDS.items():
    for name, function in functions.items():
        app.command(name, rich_help_panel=panel)(function)
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
app.add_typer(
    results.runs_app,
    name="runs",
    rich_help_panel=ANALYSE,
    help="List runs, compare and delete them.",
)


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
