"""`fedwatt deploy`: train on a real fleet, with Flower between the server and the vehicles."""

import os
import shlex
import signal
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedwatt.cli.configure import (
    Assignments,
    Methods,
    Rounds,
    configuration,
    holds_run,
    how_to_go_on,
    refuse_folder,
    stored_or,
)
from fedwatt.cli.console import console, errors
from fedwatt.cli.progress import results_table
from fedwatt.errors import RunError

if TYPE_CHECKING:
    from fedwatt.deploy.commands import Flower
    from fedwatt.deploy.control import Control
    from fedwatt.deploy.keys import Depot

app = typer.Typer(help="Train on a real fleet, with Flower.", no_args_is_help=True)
keys = typer.Typer(help="Certificates and keys of a depot.", no_args_is_help=True)
app.add_typer(keys, name="keys")

DepotFolder = Annotated[Path, typer.Option("--depot", help="Folder of the server's keys.")]
Address = Annotated[str, typer.Option("--address", help="Where the server listens, host:port.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="No TLS and no keys: only for trials on one machine.")
]
VehicleName = Annotated[str, typer.Argument(help="The vehicle's name in the fleet.")]
DEPOT = Path("depot")
LOCAL = "127.0.0.1:9092"
WORDS = {"registered": "not seen yet", "unregistered": "refused"}
"""For Flower's words, where they say little."""
PATIENCE = 60.0
"""Seconds in which a server that has just been started is to answer."""
BEFORE = ("app", "deployment.json", "roster.json")
"""What is in a run folder before enough vehicles have enrolled for the run to begin."""


@keys.command("create")
def create(
    host: Annotated[
        list[str], typer.Option("--host", help="Name or address of the server; repeatable.")
    ],
    depot: DepotFolder = DEPOT,
) -> None:
    """Make a depot: its certificate authority and the server's certificate."""
    _depot(depot).create(host)
    console.print(f"{depot}: authority and server certificate for {', '.join(host)}.")


@keys.command("add")
def add(
    vehicles: Annotated[list[str], typer.Argument(help="Names of vehicles in the fleet.")],
    depot: DepotFolder = DEPOT,
) -> None:
    """Make a key pair for each of some new vehicles."""
    for name in vehicles:
        console.print(f"{name}: copy {_depot(depot).add_vehicle(name)} into the vehicle.")
    console.print("A running server accepts them after 'fedwatt deploy keys apply'.")


@keys.command("rotate")
def rotate(
    vehicle: Annotated[str, typer.Argument(help="The vehicle whose key is replaced.")] = "",
    server: Annotated[bool, typer.Option("--server", help="Renew the server's.")] = False,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="With --server: its new names.")
    ] = None,
    depot: DepotFolder = DEPOT,
) -> None:
    """Replace a vehicle's key pair, or the server's key and certificate."""
    if server == bool(vehicle):
        raise typer.BadParameter("Name a vehicle, or give --server.")
    if server:
        _depot(depot).renew_server(host or [])
        console.print("The server shows its new certificate when it is started again.")
    else:
        console.print(f"Copy {_depot(depot).rotate_vehicle(vehicle)} into the vehicle, then")
        console.print("'fedwatt deploy keys apply' makes the server refuse the old key.")


@keys.command("revoke")
def revoke(vehicle: VehicleName, depot: DepotFolder = DEPOT) -> None:
    """Take a vehicle's key away for good."""
    _depot(depot).revoke_vehicle(vehicle)
    console.print("'fedwatt deploy keys apply' makes a running server refuse it.")


@keys.command("list")
def list_(depot: DepotFolder = DEPOT) -> None:
    """Name all vehicles of a depot."""
    for name, node in sorted(_depot(depot).registry().nodes.items()):
        console.print(f"{name}: {f'node {node}' if node else 'not yet known to the server'}")


@keys.command("apply")
def apply(depot: DepotFolder = DEPOT, address: Address = LOCAL) -> None:
    """Make the running server accept and refuse the keys that the depot says."""
    from fedwatt.deploy.control import Control

    with Control(_flower(depot, address)) as control:
        if not _apply(control):
            console.print("The server already accepts the depot's vehicles and no others.")


@app.command()
def server(
    depot: DepotFolder = DEPOT, address: Address = LOCAL, insecure: Insecure = False
) -> None:
    """Start the server (Flower's SuperLink) and make it accept the depot's vehicles."""
    flower = _flower(depot, address, insecure)
    flower.connect()
    flower.refuse_taken_port()
    command = flower.superlink()
    _show(command)
    # A session of its own: Flower's processes are told to end by us, in order.
    process = subprocess.Popen(command, env=flower.environment(), start_new_session=True)

    def end(number: int, frame: object) -> None:
        process.terminate()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    # Flower takes a second to load, and the server is starting meanwhile.
    from fedwatt.deploy.control import Control
    from fedwatt.deploy.register import wait_until_up

    with Control(flower) as control:
        if wait_until_up(control, lambda: process.poll() is None):
            if not insecure:
                _apply(control)
            console.print(f"The server is up at {address}.")
        elif process.poll() is None:
            process.terminate()
            raise RunError(f"The server does not answer at {address}; its log is above.")
    status = process.wait()
    console.print("The server has stopped.")
    raise typer.Exit(status)


@app.command()
def vehicle(
    folder: Annotated[Path, typer.Argument(help="This vehicle's folder of the fleet.")],
    server: Annotated[str, typer.Option("--server", help="host:port of the server.")] = LOCAL,
    key_folder: Annotated[
        Path | None, typer.Option("--keys", help="Folder with this vehicle's key and ca.pem.")
    ] = None,
    state: Annotated[
        Path, typer.Option(help="Where it remembers what methods need between rounds.")
    ] = Path("state"),
    threads: Annotated[int, typer.Option(help="Threads that training may use.")] = 1,
    memory_mb: Annotated[
        int, typer.Option("--memory-mb", help="Memory it may allocate; 0: no bound.")
    ] = 0,
    nice: Annotated[int, typer.Option(help="How far behind other processes, 0 to 19.")] = 10,
    field: Annotated[
        Path | None, typer.Option(help="Elevation field on board, for terrain features.")
    ] = None,
    poll: Annotated[
        float, typer.Option(help="Longest pause between looks for a question, in seconds.")
    ] = 1.0,
    patience: Annotated[
        float, typer.Option(help="Seconds to try again when the server refuses the key.")
    ] = 120.0,
    insecure: Insecure = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the data and the key, and do not join.")
    ] = False,
) -> None:
    """Take part: answer the server's questions from this vehicle's own data."""
    _need_flower()
    from fedwatt.deploy.commands import quiet
    from fedwatt.deploy.connection import Connection
    from fedwatt.deploy.limits import Limits
    from fedwatt.deploy.trial import describe_vehicle, stock_command

    if not insecure and key_folder is None:
        raise typer.BadParameter("--keys is needed, or --insecure for a trial on one machine.")
    limits = Limits(threads=threads, memory_mb=memory_mb, nice=nice)
    connection = Connection(
        server,
        None if key_folder is None else key_folder / "ca.pem",
        None if key_folder is None else key_folder / "key",
    )
    if dry_run:
        for line in describe_vehicle(folder, state, connection, field):
            console.print(line, highlight=False)
        return
    # Before Flower is loaded, which reads them. What it has to say, we say in a sentence.
    os.environ |= quiet("CRITICAL")
    from fedwatt.deploy.board import Vehicle
    from fedwatt.deploy.node import drive
    from fedwatt.deploy.progress import show_log

    limits.apply()
    show_log()
    console.print("In place of Flower's own node, which would run code that a server sends:")
    _show(stock_command(folder, state, connection, field))
    try:
        drive(
            Vehicle(folder, state, field), connection, poll_seconds=poll, patience_seconds=patience
        )
    except KeyboardInterrupt:
        console.print("Stopped.")


@app.command()
def submit(
    config: Annotated[Path | None, typer.Argument(help="TOML file.", metavar="[CONFIG]")] = None,
    out: Annotated[Path, typer.Option(help="Run folder on this machine.")] = Path("runs/fleet"),
    method: Methods = None,
    rounds: Rounds = None,
    assignments: Assignments = None,
    personalise: Annotated[
        bool,
        typer.Option("--personalise", help="Each vehicle fine-tunes the model for itself at last."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue what was interrupted in the folder --out.")
    ] = False,
    depot: DepotFolder = DEPOT,
    address: Address = LOCAL,
    insecure: Insecure = False,
) -> None:
    """Train a configuration on the vehicles of the running server."""
    flower = _flower(depot, address, insecure)
    from fedwatt.deploy.app import write_app
    from fedwatt.deploy.control import Control
    from fedwatt.deploy.execute import refuse_undeployable
    from fedwatt.deploy.register import wait_until_up
    from fedwatt.runs.folder import refuse_other_run

    refuse_folder(out, resume, BEFORE)
    chosen = configuration(
        stored_or(config, out, resume),
        methods=method,
        options={
            ("training", "rounds"): rounds,
            ("personal", "enabled"): True if personalise else None,
        },
        seeds=None,
        device=None,
        assignments=assignments,
    )
    refuse_undeployable(chosen)
    refuse_other_run(chosen, out, resume)
    flower.connect()
    before = _finished_at(out)
    with Control(flower) as control:
        with console.status(f"Waiting for the server at {address} ..."):
            wait_until_up(control, lambda: True, PATIENCE)
        runs = control.runs()
        command = flower.run(write_app(out / "app", chosen, out, resume))
        _show(command)
        # A session of its own: Ctrl-C is for us, who then end the run.
        process = subprocess.Popen(command, env=flower.environment(), start_new_session=True)
        try:
            process.wait()
        except KeyboardInterrupt:
            process.terminate()
            for run in control.runs():
                if run.number not in {one.number for one in runs}:
                    control.stop(run.number)
            errors.print(how_to_go_on(out, "Completed rounds", "fedwatt deploy submit --resume"))
            raise typer.Exit(130) from None
    if not holds_run(out):
        raise RunError(
            "The run did not begin; the log above says why. Put it right and submit it again."
        )
    if _finished_at(out) == before:
        raise RunError(
            f"The run did not end well; the log above says why. Continue it with: fedwatt deploy "
            f"submit --resume --out {out}"
        )
    console.print(results_table(out))
    console.print(f"Report: {out / 'report.html'}")


@app.command()
def status(
    out: Annotated[Path | None, typer.Option(help="A run folder to look into.")] = None,
    depot: DepotFolder = DEPOT,
    address: Address = LOCAL,
    insecure: Insecure = False,
) -> None:
    """Show the vehicles and the runs that the server knows, and how far a run is."""
    flower = _flower(depot, address, insecure)
    from fedwatt.deploy.control import Control

    with Control(flower) as control:
        _show(flower.nodes())
        nodes = [
            (one.name, one.number, WORDS.get(one.status, one.status), one.since)
            for one in control.nodes()
        ]
        console.print(_table(("vehicle", "node", "is", "since (UTC)"), nodes))
        _show(flower.runs())
        runs = [(one.number, one.status, one.since) for one in control.runs()]
        console.print(_table(("run", "is", "since (UTC)"), runs))
    if out is not None:
        from fedwatt.deploy.progress import describe_run

        for line in describe_run(out):
            console.print(line, highlight=False)


def _need_flower() -> None:
    from fedwatt.deploy import need_flower

    need_flower()


def _depot(folder: Path) -> "Depot":
    _need_flower()
    from fedwatt.deploy.keys import Depot

    return Depot(folder)


def _flower(depot: Path, address: str, insecure: bool = False) -> "Flower":
    _need_flower()
    from fedwatt.deploy.commands import Flower

    return Flower(_depot(depot), address, insecure)


def _apply(control: "Control") -> int:
    """Tell the server whose keys to accept; how many times it had to be told."""
    from fedwatt.deploy.register import apply_registry

    told = 0
    for command in apply_registry(control):
        _show(command)
        told += 1
    return told


def _table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    table = Table(*names, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(str, row))
    return table


def _show(command: list[str]) -> None:
    console.print(f"$ {shlex.join(command)}", highlight=False, soft_wrap=True)


def _finished_at(out: Path) -> float:
    """When a run folder was last completed; 0 if it never was."""
    path = out / "environment.json"
    return path.stat().st_mtime if path.exists() else 0.0
