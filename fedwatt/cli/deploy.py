"""`fedwatt deploy`: train on a real fleet, with Flower between the server and the vehicles."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli import deploy_owner
from fedwatt.cli.console import (
    Json,
    Panels,
    console,
    errors,
    plain_table,
    print_json,
    wait_for_interrupt,
)
from fedwatt.cli.data.shared import DryRun, Out
from fedwatt.cli.deploy_owner import STORE, Keys, StoreFolder
from fedwatt.cli.options import Host, Port, Resume, refuse_folder, resumable
from fedwatt.cli.progress import show_results
from fedwatt.errors import counted

if TYPE_CHECKING:
    from fedwatt.deploy.transport.processes import Flower

app = typer.Typer(cls=Panels, no_args_is_help=True)
app.command(rich_help_panel="Try it")(deploy_owner.quickstart)
OWNER = "Owner"
app.command(rich_help_panel=OWNER)(deploy_owner.owner)
app.command(rich_help_panel=OWNER)(deploy_owner.sign)
app.command(rich_help_panel=OWNER)(deploy_owner.plan)
VEHICLE = "Vehicle"
SERVER = "Server"
app.command(rich_help_panel=VEHICLE)(deploy_owner.request)
app.command(rich_help_panel=VEHICLE)(deploy_owner.show)
app.command(rich_help_panel=SERVER)(deploy_owner.add)

WORDS = {"registered": "not seen yet", "unregistered": "refused"}
"""For Flower's words, where they say little."""
PATIENCE = 60.0
"""Seconds in which a server that has just been started is to answer."""
BEFORE = (
    "app", "deployment.json", "events.jsonl", "members.jsonl",
    ".lock", ".run.lock", ".submit.lock",
)  # fmt: skip
"""What is in a run folder before enough vehicles have enrolled for the run to begin."""

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        help="Use this folder for the vehicle's state between rounds.",
        show_default="KEYS/state",
    ),
]
Run = Annotated[Path, typer.Argument(help="Run folder, or a folder of runs: the newest counts.")]
Address = Annotated[
    str, typer.Option("--address", help="Use this address of the server, host:port.")
]
LOCAL = "127.0.0.1:9092"


def flower_of(store: Path, address: str) -> "Flower":
    """Return the Flower processes of the server at `address`; refuse without Flower."""
    from fedwatt.deploy import need_flower

    need_flower()
    from fedwatt.deploy.plan.store import KeyStore
    from fedwatt.deploy.transport.processes import Flower

    return Flower(KeyStore(store), address)


def show_command(command: list[str]) -> None:
    """Show a Flower command, as it could be typed."""
    console.print(f"$ {shlex.join(command)}", soft_wrap=True)


@app.command(rich_help_panel=SERVER)
def server(store: StoreFolder = STORE, address: Address = LOCAL) -> None:
    """Run the server (Flower's SuperLink) for the vehicles of its key store."""
    flower = flower_of(store, address)
    from fedwatt.deploy import show_log
    from fedwatt.deploy.transport import processes
    from fedwatt.files import holding

    flower.store.check_server()
    show_log()
    flower.connect()
    taken = f"A server is running on {store} already. End it first, or use another --store."
    with holding(store, "server", taken):
        flower.refuse_taken_port()
        show_command(flower.superlink())
        status = processes.serve_superlink(
            flower, lambda: console.print(f"The server is up at {address}.")
        )
    console.print("The server has stopped.")
    raise typer.Exit(status)


@app.command(rich_help_panel=VEHICLE)
def vehicle(
    folder: Annotated[Path, typer.Argument(help="Folder of this vehicle in its fleet.")],
    keys: Keys,
    address: Address = LOCAL,
    state: State = None,
    threads: Annotated[int, typer.Option(help="Limit the threads of training.")] = 1,
    nice: Annotated[
        int, typer.Option(help="Set the niceness of the computing process, 0 to 19.")
    ] = 10,
    poll: Annotated[float, typer.Option(help="Limit the pause between polls, s.")] = 30.0,
    patience: Annotated[
        float, typer.Option(help="Retry for so many seconds when the server refuses the key.")
    ] = 120.0,
    dry_run: DryRun = False,
) -> None:
    """Run the vehicle client, which computes what an accepted plan says."""
    from fedwatt.deploy import need_flower, show_log
    from fedwatt.deploy.plan.certificates import KEY, OWNER
    from fedwatt.deploy.vehicle.acceptance import bytes_per_second
    from fedwatt.deploy.vehicle.handler import open_vehicle
    from fedwatt.files import holding

    state = state or keys / "state"  # in any working directory: a new state answers rounds again
    client = open_vehicle(folder, state, keys, threads=threads, nice=nice)
    if dry_run:
        console.print(f"{client.name}: data and keys are in order. Nothing was sent.")
        return
    need_flower()
    # Before Flower is loaded, which reads them.
    from fedwatt.deploy.transport.processes import quiet

    os.environ |= quiet("CRITICAL")
    from fedwatt.deploy.transport.client import Connection
    from fedwatt.deploy.transport.node import serve

    show_log()
    bandwidth = bytes_per_second(client.acceptance.bandwidth)
    # Two processes would answer a round twice.
    taken = f"A vehicle is running on {state} already. End it first, or use another --state."
    try:
        with holding(state, "vehicle", taken):
            serve(
                client.handle,
                Connection(address, keys / OWNER, keys / KEY, bandwidth, client.revoked),
                name=client.name,
                largest=client.acceptance.largest_message,
                poll_seconds=poll,
                patience_seconds=patience,
            )
    except KeyboardInterrupt:
        console.print("Stopped.")


@app.command("run", rich_help_panel=SERVER)
def run_plan(
    out: Out = Path("runs/fleet"),
    resume: Resume = False,
    store: StoreFolder = STORE,
    address: Address = LOCAL,
) -> None:
    """Run the key store's plan on the vehicles of the running server."""
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
        stoppable = resumable(out, "Completed rounds", "fedwatt deploy run")
        with stoppable, processes.only_submission(out):
            processes.submit(control, out, resume=resume, show=show_command)
    show_results(out)


@app.command(rich_help_panel=SERVER)
def status(
    run: Annotated[
        Path | None, typer.Option("--run", help="Use this run folder; repeatable.")
    ] = None,
    store: StoreFolder = STORE,
    address: Address = LOCAL,
    as_json: Json = False,
) -> None:
    """Show the server's vehicles, and the progress of a run."""
    flower = flower_of(store, address)
    from fedwatt.deploy.transport.control import Control

    with Control(flower) as control:
        nodes = [
            (node.name, node.number, WORDS.get(node.status, node.status))
            for node in control.nodes()
        ]
    lines: list[str] = []
    if run is not None:
        from fedwatt.deploy.operate.fleet_view import FleetView

        lines = [*FleetView(run).lines()]
    vehicle_columns = ("vehicle", "node", "is")
    if as_json:
        vehicles = [dict(zip(vehicle_columns, map(str, row), strict=True)) for row in nodes]
        print_json({"vehicles": vehicles, "run": lines})
        return
    console.print(plain_table(vehicle_columns, nodes))
    for line in lines:
        console.print(line)


@app.command(rich_help_panel=SERVER)
def dashboard(
    run: Run = Path("runs"),
    port: Port = 8601,
    host: Host = "127.0.0.1",
    store: StoreFolder = STORE,
    address: Address = LOCAL,
) -> None:
    """Serve the operator's page of vehicles and rounds, and /metrics."""
    flower = flower_of(store, address)
    from fedwatt.deploy.operate.dashboard import Dashboard
    from fedwatt.deploy.operate.fleet_view import FleetView, ServerFacts
    from fedwatt.report.web_server import answering

    facts = ServerFacts(flower) if flower.store.owner.exists() else None
    with answering(Dashboard(FleetView(run, facts)).answer, port=port, host=host) as page:
        console.print(f"The fleet is shown at {page} until Ctrl-C.")
        if host not in ("127.0.0.1", "::1", "localhost"):
            errors.print(
                f"Everybody who reaches {host} can read it: names of vehicles, rounds and reasons. "
                "Put a proxy with TLS and a password in front of it."
            )
        wait_for_interrupt()
        console.print("No longer shown; the fleet is not affected.")


@app.command(rich_help_panel=SERVER)
def backup(
    file: Annotated[Path, typer.Argument(help="File to write, such as fleet.tar.gz.")],
    runs: Annotated[
        list[Path] | None, typer.Option("--run", help="Use this run folder; repeatable.")
    ] = None,
    private_keys: Annotated[
        bool, typer.Option("--private-keys", help="Include private keys; lock such a file away.")
    ] = False,
    store: StoreFolder = STORE,
) -> None:
    """Back up the key store and runs into one file while they run."""
    from fedwatt.deploy.operate.backup import back_up

    content = back_up(file, store if store.exists() else None, runs or [], keys=private_keys)
    console.print(f"{file}: {counted(len(content.files), 'file')}")
    if content.left_out:
        left = counted(len(content.left_out), "private key")
        console.print(f"{left} left out; --private-keys includes them.")


@app.command("restore", rich_help_panel=SERVER)
def restore_backup(
    file: Annotated[Path, typer.Argument(help="File of 'fedwatt deploy backup'.")],
    folder: Annotated[Path, typer.Argument(help="New folder for store/ and runs/.")],
) -> None:
    """Restore a backup into a new folder and check it."""
    from fedwatt.deploy.operate.backup import restore

    content = restore(file, folder)
    console.print(
        f"{folder}: {counted(len(content.files), 'file')} of {content.at}, written by fedwatt "
        f"{content.version}."
    )
    for name in content.left_out:
        console.print(f"Put back the private key {folder / name}")
    for name in content.runs:
        again = f"fedwatt deploy run --resume --out {folder / 'runs' / name}"
        console.print(f"Continue with: {again} --store {folder / 'store'}")
