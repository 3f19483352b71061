"""`fedwatt deploy keys`: certificates and keys of a depot."""

from typing import Annotated

import typer

from fedwatt.cli import deploy_shared as shared
from fedwatt.cli.console import console

app = typer.Typer(help="Certificates and keys of a depot.", no_args_is_help=True)


@app.command("create")
def create(
    host: Annotated[
        list[str], typer.Option("--host", help="Name or address of the server; repeatable.")
    ],
    depot: shared.DepotFolder = shared.DEPOT,
) -> None:
    """Make a depot: its certificate authority and the server's certificate."""
    shared.depot_in(depot).create(host)
    console.print(f"{depot}: authority and server certificate for {', '.join(host)}.")


@app.command("add")
def add(
    vehicles: Annotated[list[str], typer.Argument(help="Names of vehicles in the fleet.")],
    depot: shared.DepotFolder = shared.DEPOT,
) -> None:
    """Make a key pair for each of some new vehicles."""
    for name in vehicles:
        console.print(f"{name}: copy {shared.depot_in(depot).add_vehicle(name)} into the vehicle.")
    console.print("A running server accepts them after 'fedwatt deploy keys apply'.")


@app.command("rotate")
def rotate(
    vehicle: Annotated[str, typer.Argument(help="The vehicle whose key is replaced.")] = "",
    server: Annotated[bool, typer.Option("--server", help="Renew the server's.")] = False,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="With --server: its new names.")
    ] = None,
    depot: shared.DepotFolder = shared.DEPOT,
) -> None:
    """Replace a vehicle's key pair, or the server's key and certificate."""
    if server == bool(vehicle):
        raise typer.BadParameter("Name a vehicle, or give --server.")
    if server:
        shared.depot_in(depot).renew_server(host or [])
        console.print("The server shows its new certificate when it is started again.")
    else:
        console.print(
            f"Copy {shared.depot_in(depot).rotate_vehicle(vehicle)} into the vehicle, then"
        )
        console.print("'fedwatt deploy keys apply' makes the server refuse the old key.")


@app.command("revoke")
def revoke(
    vehicle: Annotated[str, typer.Argument(help="The vehicle's name in the fleet.")],
    depot: shared.DepotFolder = shared.DEPOT,
) -> None:
    """Take a vehicle's key away for good."""
    shared.depot_in(depot).revoke_vehicle(vehicle)
    console.print("'fedwatt deploy keys apply' makes a running server refuse it.")


@app.command("list")
def list_(depot: shared.DepotFolder = shared.DEPOT) -> None:
    """Name all vehicles of a depot."""
    for name, node in sorted(shared.depot_in(depot).registry().nodes.items()):
        console.print(f"{name}: {f'node {node}' if node else 'not yet known to the server'}")


@app.command("apply")
def apply(depot: shared.DepotFolder = shared.DEPOT, address: shared.Address = shared.LOCAL) -> None:
    """Make the running server accept and refuse the keys that the depot says."""
    from fedwatt.deploy.control import Control

    with Control(shared.flower_of(depot, address)) as control:
        if not shared.apply_depot(control):
            console.print("The server already accepts the depot's vehicles and no others.")
