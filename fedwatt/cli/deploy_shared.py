"""Options and parts that the commands of a real fleet share."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli.console import console
from fedwatt.errors import counted

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


def depot_in(folder: Path) -> "Depot":
    """The depot in a folder."""
    from fedwatt.deploy.keys import Depot

    return Depot(folder)


def flower_of(depot: Path, address: str, insecure: bool = False) -> "Flower":
    """Flower's commands for the server at `address`; RunError without Flower."""
    from fedwatt.deploy import need_flower

    need_flower()
    from fedwatt.deploy.commands import Flower

    return Flower(depot_in(depot), address, insecure)


def refuse_without_keys(keys: Path | None, insecure: bool) -> None:
    """Raise where nothing says who this is to the server."""
    if keys is None and not insecure:
        raise typer.BadParameter("--keys is needed, or --insecure for a trial on one machine.")


@contextmanager
def only_server(flower: "Flower", kind: str) -> Iterator[None]:
    """Be the only server of a depot; `kind` is what people call it."""
    flower.connect()
    from fedwatt.deploy import processes

    with processes.only_server(flower) as ended:
        if ended:
            console.print(f"Ended {counted(ended, 'process')} of a {kind} that was killed.")
        flower.refuse_taken_port()
        show_command(flower.superlink())
        yield
    console.print(f"The {kind} has stopped.")


def apply_depot(control: "Control") -> int:
    """Make the server accept the depot's keys and no others; how many changes that took."""
    from fedwatt.deploy.register import apply_registry

    changes = 0
    for command in apply_registry(control):
        show_command(command)
        changes += 1
    return changes


def keys_changed(control: "Control") -> None:
    """Apply the depot's keys, where the server asks for any."""
    if not control.flower.insecure:
        apply_depot(control)


def show_command(command: list[str]) -> None:
    """A Flower command, as it could be typed."""
    console.print(f"$ {shlex.join(command)}", soft_wrap=True)
