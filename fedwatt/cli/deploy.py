"""`fedwatt deploy`: train on a real fleet, with Flower between the server and the vehicles."""

import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli.configure import Assignments, Methods, Rounds, configuration, stored_or
from fedwatt.cli.console import console
from fedwatt.cli.progress import results_table
from fedwatt.errors import RunError

if TYPE_CHECKING:
    from fedwatt.deploy.commands import Flower
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
    _apply(_flower(depot, address))


@app.command()
def server(
    depot: DepotFolder = DEPOT, address: Address = LOCAL, insecure: Insecure = False
) -> None:
    """Start the server (Flower's SuperLink) and make it accept the depot's vehicles."""
    flower = _flower(depot, address, insecure)
    if not insecure and not flower.depot.ca.exists():
        raise RunError(f"{depot} has no keys. 'fedwatt deploy keys create' makes them.")
    flower.refuse_taken_port()
    flower.connect()
    command = flower.superlink()
    _show(command)
    # A session of its own: Flower's processes are told to end by us, in order.
    process = subprocess.Popen(command, env=flower.environment(), start_new_session=True)

    def end(number: int, frame: object) -> None:
        process.terminate()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    from fedwatt.deploy.register import wait_until_up

    if wait_until_up(flower, lambda: process.poll() is None):
        if not insecure:
            _apply(flower)
        console.print(f"The server is up at {address}.")
    elif process.poll() is None:
        process.terminate()
        raise RunError(f"The server does not answer at {address}; its log is above.")
    raise typer.Exit(process.wait())


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
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
    from fedwatt.deploy.board import Vehicle
    from fedwatt.deploy.limits import Limits
    from fedwatt.deploy.node import Connection, drive
    from fedwatt.deploy.progress import show_log
    from fedwatt.deploy.trial import describe_vehicle, stock_command

    if not insecure and key_folder is None:
        raise typer.BadParameter("--keys is needed, or --insecure for a trial on one machine.")
    Limits(threads=threads, memory_mb=memory_mb, nice=nice).apply()
    connection = Connection(
        server,
        None if key_folder is None else key_folder / "ca.pem",
        None if key_folder is None else key_folder / "key",
    )
    if dry_run:
        for line in describe_vehicle(folder, state, connection):
            console.print(line, highlight=False)
        return
    show_log()
    console.print("In place of Flower's own node, which would run code that a server sends:")
    _show(stock_command(folder, state, connection))
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
    from fedwatt.deploy.commands import write_app
    from fedwatt.deploy.execute import refuse_undeployable
    from fedwatt.runs.execute import refuse_other_run

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
    command = flower.run(write_app(out / "app", chosen, out, resume))
    _show(command)
    before = _finished_at(out)
    subprocess.run(command, env=flower.environment(), check=False)
    if _finished_at(out) == before:
        raise RunError(
            f"The run did not end well; Flower's log above says why. Continue it with: fedwatt "
            f"deploy submit --resume --out {out}"
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
    flower.connect()
    for command in (flower.nodes(), flower.runs()):
        _show(command)
        subprocess.run(command, env=flower.environment(), check=False)
    if out is not None:
        from fedwatt.deploy.trial import describe_run

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


def _apply(flower: "Flower") -> None:
    from fedwatt.deploy.register import apply_registry

    for command in apply_registry(flower):
        _show(command)


def _show(command: list[str]) -> None:
    console.print(f"$ {shlex.join(command)}", highlight=False, soft_wrap=True)


def _finished_at(out: Path) -> float:
    """When a run folder was last completed; 0 if it never was."""
    path = out / "environment.json"
    return path.stat().st_mtime if path.exists() else 0.0
