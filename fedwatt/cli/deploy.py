"""`fedwatt deploy`: train on a real fleet, with Flower between the server and the vehicles."""

import os
from pathlib import Path
from typing import Annotated

import typer

from fedwatt.cli import deploy_operate, deploy_owner
from fedwatt.cli.configure import Resume, refuse_folder, resumable
from fedwatt.cli.console import console, plain_table
from fedwatt.cli.deploy_shared import LOCAL, STORE, Address, StoreFolder, flower_of, show_command
from fedwatt.cli.progress import show_results
from fedwatt.errors import counted

app = typer.Typer(help="Train on a real fleet, with Flower.", no_args_is_help=True)
app.command()(deploy_owner.quickstart)
app.command()(deploy_owner.owner)
app.command()(deploy_owner.request)
app.command()(deploy_owner.sign)
app.command()(deploy_owner.plan)
app.command()(deploy_owner.show)
app.command()(deploy_owner.add)
app.command()(deploy_operate.dashboard)
app.command()(deploy_operate.backup)
app.command()(deploy_operate.restore)

WORDS = {"registered": "not seen yet", "unregistered": "refused"}
"""For Flower's words, where they say little."""
PATIENCE = 60.0
"""Seconds in which a server that has just been started is to answer."""
BEFORE = (
    "app", "deployment.json", "events.jsonl", "members.jsonl",
    ".lock", ".run.lock", ".submit.lock",
)  # fmt: skip
"""What is in a run folder before enough vehicles have enrolled for the run to begin."""

Server = Annotated[str, typer.Option("--server", help="host:port of the server.")]
Keys = Annotated[
    Path, typer.Option("--keys", help="Folder with key.pem, certificate.pem, owner.pem.")
]
State = Annotated[Path, typer.Option(help="Folder for answers and state between rounds.")]
Poll = Annotated[float, typer.Option(help="Longest pause between polls, in seconds.")]
Patience = Annotated[float, typer.Option(help="Seconds to retry when the server refuses the key.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check data and keys, and do not join.")]


@app.command()
def server(store: StoreFolder = STORE, address: Address = LOCAL) -> None:
    """Run the server (Flower's SuperLink) for the vehicles of its key store."""
    flower = flower_of(store, address)
    from fedwatt.deploy import show_log
    from fedwatt.deploy.transport import processes

    flower.store.check_server()
    show_log()
    flower.connect()
    with processes.only_server(flower) as ended:
        if ended:
            console.print(f"Ended {counted(ended, 'process')} of a server that was killed.")
        flower.refuse_taken_port()
        show_command(flower.superlink())
        status = processes.serve_superlink(
            flower, lambda: console.print(f"The server is up at {address}.")
        )
    console.print("The server has stopped.")
    raise typer.Exit(status)


@app.command()
def vehicle(
    folder: Annotated[Path, typer.Argument(help="This vehicle's folder of the fleet.")],
    keys: Keys,
    server: Server = LOCAL,
    state: State = Path("state"),
    threads: Annotated[int, typer.Option(help="Threads that training may use.")] = 1,
    nice: Annotated[int, typer.Option(help="Niceness of the computing process, 0 to 19.")] = 10,
    poll: Poll = 1.0,
    patience: Patience = 120.0,
    dry_run: DryRun = False,
) -> None:
    """Run the vehicle client: answer the plans that its owner signed and it accepts."""
    from fedwatt.deploy import need_flower, show_log
    from fedwatt.deploy.vehicle.acceptance import bytes_per_second
    from fedwatt.deploy.vehicle.handler import open_vehicle

    own = open_vehicle(folder, state, keys, threads=threads, nice=nice)
    if dry_run:
        console.print(f"{own.name}: data and keys are in order. Nothing was sent.")
        return
    need_flower()
    # Before Flower is loaded, which reads them.
    from fedwatt.deploy.transport.processes import quiet

    os.environ |= quiet("CRITICAL")
    from fedwatt.deploy.transport.node import Connection, serve

    show_log()
    bandwidth = bytes_per_second(own.acceptance.bandwidth)
    try:
        serve(
            own.handle,
            Connection.of(server, keys, bandwidth),
            name=own.name,
            largest=own.acceptance.largest_message,
            poll_seconds=poll,
            patience_seconds=patience,
        )
    except KeyboardInterrupt:
        console.print("Stopped.")


@app.command()
def submit(
    out: Annotated[Path, typer.Option(help="Run folder on this machine.")] = Path("runs/fleet"),
    resume: Resume = False,
    store: StoreFolder = STORE,
    address: Address = LOCAL,
) -> None:
    """Carry out the key store's plan on the vehicles of the running server."""
    flower = flower_of(store, address)
    from fedwatt.deploy.server.execute import refuse_undeployable
    from fedwatt.deploy.transport import processes
    from fedwatt.deploy.transport.control import Control
    from fedwatt.runs.folder import refuse_other_run

    refuse_folder(out, resume, BEFORE)
    config = flower.store.plan().config
    refuse_undeployable(config)
    refuse_other_run(config, out, resume)
    flower.connect()
    with Control(flower) as control:
        with console.status(f"Waiting for the server at {address} ..."):
            processes.wait_until_up(control, lambda: True, PATIENCE)
        kept = resumable(out, "Completed rounds", "fedwatt deploy submit")
        with kept, processes.only_submission(out):
            processes.submit(control, out, resume=resume, show=show_command)
    show_results(out)


@app.command()
def status(
    out: Annotated[Path | None, typer.Option(help="A run folder to describe.")] = None,
    store: StoreFolder = STORE,
    address: Address = LOCAL,
) -> None:
    """Show the server's vehicles and runs, and how far a run is."""
    flower = flower_of(store, address)
    from fedwatt.deploy.transport.control import Control

    with Control(flower) as control:
        nodes = [
            (one.name, one.number, WORDS.get(one.status, one.status), one.since)
            for one in control.nodes()
        ]
        console.print(plain_table(("vehicle", "node", "is", "since (UTC)"), nodes))
        runs = [(one.number, one.status, one.since) for one in control.runs()]
        console.print(plain_table(("run", "is", "since (UTC)"), runs))
    if out is not None:
        from fedwatt.deploy.operate.fleet_view import FleetView

        for line in FleetView(out).lines():
            console.print(line)
