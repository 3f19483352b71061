"""`fedwatt deploy dashboard`, `alerts`, `backup` and `restore`: the operator's part."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli.console import console, errors, wait_for_interrupt
from fedwatt.cli.deploy_shared import LOCAL, STORE, Address, StoreFolder, flower_of
from fedwatt.errors import counted

if TYPE_CHECKING:
    from fedwatt.deploy.operate.alerts import Watchman

Runs = Annotated[
    Path,
    typer.Argument(help="A run folder, or a folder of runs: the newest one is shown."),
]
AlertFile = Annotated[
    Path | None,
    typer.Option("--alerts", help="TOML file with limits and where alerts go; else the defaults."),
]
Port = Annotated[int, typer.Option(help="Port of the page; 0: any that is free.", min=0)]
Host = Annotated[
    str,
    typer.Option(help="Address to listen on. Whoever reaches it sees all: it asks no password."),
]


def dashboard(
    run: Runs = Path("runs"),
    alerts: AlertFile = None,
    port: Port = 8601,
    host: Host = "127.0.0.1",
    store: StoreFolder = STORE,
    address: Address = LOCAL,
) -> None:
    """Serve the operator's page: vehicles, rounds, alerts; /metrics for Prometheus; /health/ready.

    It only reads, and it may be started and stopped at any time. It reads the key store where
    there is one, so that it knows whose certificate counts and who is connected.
    """
    watchman = _watchman(run, alerts, store, address)
    from fedwatt.deploy.operate.dashboard import dashboard as serving

    _log_alerts()
    with serving(watchman.view, watchman, port=port, host=host) as page:
        console.print(f"The fleet is shown at {page} until Ctrl-C.")
        if host not in ("127.0.0.1", "::1", "localhost"):
            errors.print(
                f"Everybody who reaches {host} can read it: names of vehicles, rounds and reasons. "
                "Put a proxy with TLS and a password in front of it."
            )
        wait_for_interrupt()
        console.print("No longer shown; the fleet goes on.")


def alerts(
    run: Runs = Path("runs"),
    alerts: AlertFile = None,
    store: StoreFolder = STORE,
    address: Address = LOCAL,
) -> None:
    """Look once whether anything is beyond its limit, tell of what has changed, and say what fires.

    The exit status is 1 while anything fires, for cron; the dashboard looks by itself.
    """
    watchman = _watchman(run, alerts, store, address)
    from fedwatt.deploy.operate.alerts import firing

    _log_alerts()
    watchman.look()
    found = firing(watchman.view.run.folder)
    for change in found.values():
        console.print(f"{change.alert} since {change.at}: {change.about}")
    if found:
        raise typer.Exit(1)
    console.print("Nothing is beyond its limit.")


def _watchman(run: Path, alerts: Path | None, store: Path, address: str) -> "Watchman":
    """Return the watcher of a run, and of the key store where there is one."""
    flower = flower_of(store, address)
    from fedwatt.deploy.operate.alert_rules import AlertSettings
    from fedwatt.deploy.operate.alerts import Watchman
    from fedwatt.deploy.operate.fleet_view import FleetView
    from fedwatt.deploy.operate.server_facts import ServerFacts

    settings = AlertSettings() if alerts is None else AlertSettings.read(alerts)
    facts = ServerFacts(flower) if flower.store.owner.exists() else None
    return Watchman(FleetView(run, facts), settings)


def _log_alerts() -> None:
    from fedwatt.deploy import show_log

    show_log(logging.getLogger("fedwatt.alerts"), "%(asctime)s %(levelname)s %(message)s")


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
