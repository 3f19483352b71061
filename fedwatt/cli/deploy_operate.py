"""`fedwatt deploy dashboard`, `backup` and `restore`: the operator's part."""

from pathlib import Path
from typing import Annotated

import typer

from fedwatt.cli.console import console, errors, wait_for_interrupt
from fedwatt.cli.deploy_shared import LOCAL, STORE, Address, StoreFolder, flower_of
from fedwatt.errors import counted

Runs = Annotated[
    Path,
    typer.Argument(help="A run folder, or a folder of runs: the newest one is shown."),
]
Backend = Annotated[int, typer.Option(help="Backend of the page; 0: any that is free.", min=0)]
Host = Annotated[
    str,
    typer.Option(help="Address to listen on. Whoever reaches it sees all: it asks no password."),
]


def dashboard(
    run: Runs = Path("runs"),
    port: Backend = 8601,
    host: Host = "127.0.0.1",
    store: StoreFolder = STORE,
    address: Address = LOCAL,
) -> None:
    """Serve the operator's page: vehicles and rounds; /metrics for Prometheus; /health/ready.

    It only reads, and it may be started and stopped at any time. It reads the key store where
    there is one, so that it knows whose certificate counts and who is connected.
    """
    flower = flower_of(store, address)
    from fedwatt.deploy.operate.dashboard import dashboard as serving
    from fedwatt.deploy.operate.fleet_view import FleetView, ServerFacts

    facts = ServerFacts(flower) if flower.store.owner.exists() else None
    with serving(FleetView(run, facts), port=port, host=host) as page:
        console.print(f"The fleet is shown at {page} until Ctrl-C.")
        if host not in ("127.0.0.1", "::1", "localhost"):
            errors.print(
                f"Everybody who reaches {host} can read it: names of vehicles, rounds and reasons. "
                "Put a proxy with TLS and a password in front of it."
            )
        wait_for_interrupt()
        console.print("No longer shown; the fleet goes on.")


def backup(
    file: Annotated[Path, typer.Argument(help="The tar file to write.")],
    runs: Annotated[
        list[Path] | None, typer.Option("--run", help="A run folder to include; repeatable.")
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="Include private keys; keep such a file locked away.")
    ] = False,
    store: StoreFolder = STORE,
) -> None:
    """Write the key store and runs into one file; the server and the runs may go on meanwhile."""
    from fedwatt.deploy.operate.backup import back_up

    found = back_up(file, store if store.exists() else None, runs or [], keys=keys)
    console.print(f"{file}: {counted(len(found.sha256), 'file')}")
    if found.left_out:
        left = counted(len(found.left_out), "private key")
        console.print(f"{left} left out; --keys includes them.")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that 'fedwatt deploy backup' wrote.")],
    folder: Annotated[Path, typer.Argument(help="New folder for store/ and runs/.")],
) -> None:
    """Put a backup into a new folder, whole and checked, with its permissions."""
    from fedwatt.deploy.operate.backup import restore as put_back

    found = put_back(file, folder)
    console.print(
        f"{folder}: {counted(len(found.sha256), 'file')} of {found.at}, written by fedwatt "
        f"{found.version}."
    )
    for name in found.left_out:
        console.print(f"Put back the private key {folder / name}")
    for name in found.runs:
        again = f"fedwatt deploy submit --resume --out {folder / 'runs' / name}"
        console.print(f"Go on with: {again} --store {folder / 'store'}")
