"""`fedwatt deploy relay`: a server to its vehicles and one vehicle to the centre."""

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli import deploy_shared as shared
from fedwatt.cli.console import console

if TYPE_CHECKING:
    from fedwatt.deploy.control import Control

Least = Annotated[
    int, typer.Option(help="Vehicles of its own that a sum must be of, whatever the centre asks.")
]


def relay(
    name: Annotated[str, typer.Argument(help="This relay's name in the centre's depot.")],
    centre: Annotated[str, typer.Option("--centre", help="host:port of the centre.")],
    keys: Annotated[
        Path | None, typer.Option("--keys", help="Folder with this relay's key and ca.pem.")
    ] = None,
    depot: shared.DepotFolder = shared.DEPOT,
    address: shared.Address = shared.LOCAL,
    state: Annotated[Path, typer.Option(help="Where it keeps sums and questions.")] = Path("relay"),
    least: Least = 1,
    patience: Annotated[
        float, typer.Option(help="Seconds to try again when the centre refuses the key.")
    ] = 120.0,
    insecure: shared.Insecure = False,
) -> None:
    """Add up what the vehicles of a depot answer, and answer the centre for all of them."""
    shared.refuse_without_keys(keys, insecure)
    flower = shared.flower_of(depot, address, insecure)
    settings = {
        "name": name,
        "centre": centre,
        "keys": "" if keys is None else str(keys.resolve()),
        "folder": str(state.resolve()),
        "least": least,
        "patience": patience,
    }
    with shared.only_server(flower, "relay"):
        from fedwatt.deploy.orphans import end_orphans
        from fedwatt.deploy.processes import follow, serve, write_server_app

        app = write_server_app(state / "app", "fedwatt.deploy.relay_app:app", settings)

        def on_up(control: "Control") -> None:
            shared.show_command(flower.run(app))
            run = follow(flower, app)
            threading.Thread(target=_until_over, args=(run,), daemon=True).start()
            console.print(f"Relay {name} is up at {address}; its centre is {centre}.")

        status = serve(flower, on_up, shared.keys_changed)
        end_orphans(flower.home)
    raise typer.Exit(status)


def _until_over(run: "subprocess.Popen[bytes]") -> None:
    """Stop the relay's server when its other half has ended."""
    run.wait()
    os.kill(os.getpid(), signal.SIGTERM)
