"""Options and parts that the commands of a deployed fleet share."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli.console import console

if TYPE_CHECKING:
    from fedwatt.deploy.transport.processes import Flower

StoreFolder = Annotated[Path, typer.Option("--store", help="The server's key store.")]
Address = Annotated[str, typer.Option("--address", help="Where the server listens, host:port.")]
STORE = Path("server")
LOCAL = "127.0.0.1:9092"


def flower_of(store: Path, address: str) -> "Flower":
    """Return Flower's commands for the server at `address`; RunError without Flower."""
    from fedwatt.deploy import need_flower

    need_flower()
    from fedwatt.deploy.plan.store import KeyStore
    from fedwatt.deploy.transport.processes import Flower

    return Flower(KeyStore(store), address)


def show_command(command: list[str]) -> None:
    """Show a Flower command, as it could be typed."""
    console.print(f"$ {shlex.join(command)}", soft_wrap=True)
