"""`fedwatt deploy`: train on a real fleet, with Flower between the server and the vehicles."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli import deploy_keys, deploy_operate, deploy_policy, deploy_relay
from fedwatt.cli.configure import (
    Assignments,
    Methods,
    Personalise,
    Resume,
    Rounds,
    configuration,
    refuse_folder,
    resumable,
)
from fedwatt.cli.console import console, plain_table
from fedwatt.cli.deploy_shared import (
    DEPOT,
    LOCAL,
    Address,
    DepotFolder,
    Insecure,
    flower_of,
    keys_changed,
    only_server,
    refuse_without_keys,
    show_command,
)
from fedwatt.cli.progress import show_results

if TYPE_CHECKING:
    from fedwatt.deploy.control import Control

app = typer.Typer(help="Train on a real fleet, with Flower.", no_args_is_help=True)
app.add_typer(deploy_keys.app, name="keys")
app.add_typer(deploy_policy.app, name="policy")
app.command()(deploy_relay.relay)
app.command()(deploy_operate.dashboard)
app.command()(deploy_operate.alerts)
app.command()(deploy_operate.backup)
app.command()(deploy_operate.restore)

WORDS = {"registered": "not seen yet", "unregistered": "refused"}
"""For Flower's words, where they say little."""
PATIENCE = 60.0
"""Seconds in which a server that has just been started is to answer."""
BEFORE = (
    "alerts.jsonl", "app", "deployment.json", "events.jsonl", "roster.json", "roster.jsonl",
    ".lock", ".run.lock", ".submit.lock",
)  # fmt: skip
"""What is in a run folder before enough vehicles have enrolled for the run to begin."""

Server = Annotated[str, typer.Option("--server", help="host:port of the server.")]
Keys = Annotated[
    Path | None, typer.Option("--keys", help="Folder with this vehicle's key and ca.pem.")
]
State = Annotated[Path, typer.Option(help="Where it remembers what methods need between rounds.")]
Memory = Annotated[int, typer.Option("--memory-mb", help="Memory it may allocate; 0: no bound.")]
PolicyFolder = Annotated[
    Path | None,
    typer.Option("--policy", help="Folder with policy.toml; by default that of --keys."),
]
Field = Annotated[Path | None, typer.Option(help="Elevation field on board, for terrain features.")]
OfDay = Annotated[
    str,
    typer.Option(
        "--hours",
        help="Times of the day at which it answers, such as 22:00-06:00, or '22:00-06:00 "
        "Europe/Berlin'; by default all.",
    ),
]
Bandwidth = Annotated[
    str,
    typer.Option(help="Most that it sends and receives, such as 200kB/s; by default no limit."),
]
Poll = Annotated[
    float, typer.Option(help="Longest pause between looks for a question, in seconds.")
]
Patience = Annotated[
    float, typer.Option(help="Seconds to try again when the server refuses the key.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check the data and the key, and do not join.")
]


@app.command()
def server(
    depot: DepotFolder = DEPOT, address: Address = LOCAL, insecure: Insecure = False
) -> None:
    """Start the server (Flower's SuperLink) and make it accept the depot's vehicles."""
    flower = flower_of(depot, address, insecure)

    def on_up(control: "Control") -> None:
        console.print(f"The server is up at {address}.")

    with only_server(flower, "server"):
        from fedwatt.deploy.processes import serve

        status = serve(flower, on_up, keys_changed)
    raise typer.Exit(status)


@app.command()
def vehicle(
    folder: Annotated[Path, typer.Argument(help="This vehicle's folder of the fleet.")],
    server: Server = LOCAL,
    key_folder: Keys = None,
    state: State = Path("state"),
    threads: Annotated[int, typer.Option(help="Threads that training may use.")] = 1,
    memory_mb: Memory = 0,
    nice: Annotated[int, typer.Option(help="How far behind other processes, 0 to 19.")] = 10,
    field: Field = None,
    poll: Poll = 1.0,
    patience: Patience = 120.0,
    policy: PolicyFolder = None,
    hours: OfDay = "",
    bandwidth: Bandwidth = "",
    insecure: Insecure = False,
    dry_run: DryRun = False,
) -> None:
    """Take part: answer the server's questions from this vehicle's own data."""
    from fedwatt.deploy.board import Board, refuse_unknown_server
    from fedwatt.deploy.commands import quiet
    from fedwatt.deploy.connection import Connection
    from fedwatt.deploy.limits import Limits
    from fedwatt.deploy.pace import bytes_per_second
    from fedwatt.deploy.trial import describe_vehicle, stock_command
    from fedwatt.telemetry.store import read_vehicle

    refuse_without_keys(key_folder, insecure)
    limits = Limits(threads=threads, memory_mb=memory_mb, nice=nice)
    connection = Connection.of(server, key_folder, bytes_per_second(bandwidth))
    board = Board.of(key_folder, read_vehicle(folder).name, policy, hours)
    if dry_run:
        for line in describe_vehicle(folder, state, connection, field, board):
            console.print(line)
        return
    # Before Flower is loaded, which reads them. What it has to say, we say in a sentence.
    os.environ |= quiet("CRITICAL")
    from fedwatt.deploy.node import drive
    from fedwatt.deploy.progress import show_log
    from fedwatt.deploy.vehicle import Vehicle

    limits.apply()
    show_log()
    console.print("In place of Flower's own node, which would run code that a server sends:")
    show_command(stock_command(folder, state, connection, field, hours))
    try:
        drive(
            Vehicle(folder, state, field, board),
            connection,
            poll_seconds=poll,
            patience_seconds=patience,
            before=lambda: refuse_unknown_server(connection, board.policy),
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
    personalise: Personalise = False,
    resume: Resume = False,
    depot: DepotFolder = DEPOT,
    address: Address = LOCAL,
    insecure: Insecure = False,
) -> None:
    """Train a configuration on the vehicles of the running server."""
    flower = flower_of(depot, address, insecure)
    from fedwatt.deploy import processes
    from fedwatt.deploy.control import Control
    from fedwatt.deploy.execute import refuse_undeployable
    from fedwatt.deploy.register import wait_until_up
    from fedwatt.runs.folder import refuse_other_run

    refuse_folder(out, resume, BEFORE)
    chosen = configuration(
        config,
        out,
        resume=resume,
        methods=method,
        options={
            "training.rounds": rounds,
            "personal.enabled": True if personalise else None,
        },
        assignments=assignments,
    )
    refuse_undeployable(chosen)
    refuse_other_run(chosen, out, resume)
    flower.connect()
    with Control(flower) as control:
        with console.status(f"Waiting for the server at {address} ..."):
            wait_until_up(control, lambda: True, PATIENCE)
        kept = resumable(out, "Completed rounds", "fedwatt deploy submit")
        with kept, processes.only_submission(out):
            processes.submit(control, chosen, out, resume=resume, show=show_command)
    show_results(out)


@app.command()
def status(
    out: Annotated[Path | None, typer.Option(help="A run folder to look into.")] = None,
    depot: DepotFolder = DEPOT,
    address: Address = LOCAL,
    insecure: Insecure = False,
) -> None:
    """Show the vehicles and the runs that the server knows, and how far a run is."""
    flower = flower_of(depot, address, insecure)
    from fedwatt.deploy.control import Control

    with Control(flower) as control:
        show_command(flower.nodes())
        nodes = [
            (one.name, one.number, WORDS.get(one.status, one.status), one.since)
            for one in control.nodes()
        ]
        console.print(plain_table(("vehicle", "node", "is", "since (UTC)"), nodes))
        show_command(flower.runs())
        runs = [(one.number, one.status, one.since) for one in control.runs()]
        console.print(plain_table(("run", "is", "since (UTC)"), runs))
    if out is not None:
        from fedwatt.deploy.progress import describe_run

        for line in describe_run(out):
            console.print(line)
