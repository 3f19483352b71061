"""Options and parts that the commands of a real fleet share."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli.console import console

if TYPE_CHECKING:
    from fedwatt.deploy.commands import Flower
    from fedwatt.deploy.control import Control
    from fedwatt.deploy.keys import Depot

DepotFolder = Annotated[Path, typer.Option("--depot", help="Folder of the server's keys.")]
Address = Annotated[str, typer.Option("--address", help="Where the server listens, host:port.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="No TLS and no keys: only for trials on one machine.")
]
DEPOT = Path("depot")
LOCAL = "127.0.0.1:9092"


def need_deploy() -> None:
    """RunError without Flower."""
    from fedwatt.deploy import need_flower

    need_flower()


def depot_in(folder: Path) -> "Depot":
    """The depot in a folder; RunError without Flower."""
    need_deploy()
    from fedwatt.deploy.keys import Depot

    return Depot(folder)


def flower_of(depot: Path, address: str, insecure: bool = False) -> "Flower":
    """Flower's commands for the server at `address`; RunError without Flower."""
    own = depot_in(depot)
    from fedwatt.deploy.commands import Flower

    return Flower(own, address, insecure)


def apply_depot(control: "Control") -> int:
    """Make the server accept the depot's keys and no others; how many changes that took."""
    from fedwatt.deploy.register import apply_registry

    changes = 0
    for command in apply_registry(control):
        show_command(command)
        changes += 1
    return changes


def show_command(command: list[str]) -> None:
    """A Flower command, as it could be typed."""
    console.print(f"$ {shlex.join(command)}", highlight=False, soft_wrap=True)
