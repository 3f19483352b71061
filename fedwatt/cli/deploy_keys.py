"""`fedwatt deploy keys`: certificates and keys of a depot."""

from pathlib import Path
from typing import Annotated

import typer

from fedwatt.cli import deploy_shared as shared
from fedwatt.cli.console import console

APPLIED = "A running server knows within seconds; 'fedwatt deploy keys apply' makes sure now."

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


@app.command("request")
def request(
    vehicle: Annotated[str, typer.Argument(help="The vehicle's name in the fleet.")],
    keys: Annotated[Path, typer.Option("--keys", help="New folder for its key.")],
) -> None:
    """On the vehicle: make its key, which never leaves it, and a request that the depot signs."""
    from fedwatt.deploy.key_request import REQUEST, make_request

    key = make_request(vehicle, keys)
    console.print(f"{vehicle}: its key is {key}", soft_wrap=True)
    console.print(f"Take {keys / REQUEST} to the depot: 'fedwatt deploy keys sign' answers it.")


@app.command("sign")
def sign(
    requests: Annotated[list[Path], typer.Argument(help="Requests, or folders that hold one.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Refuse the vehicle's old key from now on.")
    ] = False,
    depot: shared.DepotFolder = shared.DEPOT,
) -> None:
    """Accept the keys of vehicles' requests; compare the fingerprints with what vehicles showed."""
    own = shared.depot_in(depot)
    from fedwatt.deploy.key_request import fingerprint

    for path in requests:
        signed = own.sign(path, replace=replace)
        answers = own.hand_out(signed.vehicle, path if path.is_dir() else path.parent)
        key = fingerprint(signed.key)
        console.print(f"{signed.vehicle}: accepted {key}", soft_wrap=True)
        console.print(f"It needs {', '.join(map(str, answers))} beside its key.")
    console.print(APPLIED)


@app.command("add")
def add(
    vehicles: Annotated[list[str], typer.Argument(help="Names of vehicles in the fleet.")],
    depot: shared.DepotFolder = shared.DEPOT,
) -> None:
    """For a trial: make key pairs here; on the road a vehicle makes its own ('keys request')."""
    for name in vehicles:
        console.print(f"{name}: copy {shared.depot_in(depot).add_vehicle(name)} into the vehicle.")
    console.print(APPLIED)


@app.command("rotate")
def rotate(
    vehicle: Annotated[str, typer.Argument(help="The vehicle whose key is replaced.")] = "",
    server: Annotated[bool, typer.Option("--server", help="Renew the server's.")] = False,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="With --server: its new names.")
    ] = None,
    depot: shared.DepotFolder = shared.DEPOT,
) -> None:
    """Replace a key pair that the depot made, or the server's key and certificate."""
    if server == bool(vehicle):
        raise typer.BadParameter("Name a vehicle, or give --server.")
    if server:
        shared.depot_in(depot).renew_server(host or [])
        console.print("The server shows its new certificate when it is started again.")
    else:
        console.print(
            f"Copy {shared.depot_in(depot).rotate_vehicle(vehicle)} into the vehicle, then"
        )
        console.print(APPLIED)


@app.command("revoke")
def revoke(
    key: Annotated[
        str, typer.Argument(help="A vehicle's name, or the fingerprint of a key.", metavar="KEY")
    ],
    depot: shared.DepotFolder = shared.DEPOT,
) -> None:
    """Refuse a key for good."""
    name = shared.depot_in(depot).revoke_vehicle(key)
    console.print(f"{name or key} is refused from now on.")
    console.print(APPLIED)


@app.command("list")
def list_(depot: shared.DepotFolder = shared.DEPOT) -> None:
    """Show the keys of a depot's vehicles, and those that were revoked."""
    registry = shared.depot_in(depot).registry()
    for name, key in sorted(registry.keys.items()):
        console.print(f"{name}: {key}", soft_wrap=True)
    for key in registry.revoked:
        console.print(f"revoked: {key}", soft_wrap=True)


@app.command("apply")
def apply(depot: shared.DepotFolder = shared.DEPOT, address: shared.Address = shared.LOCAL) -> None:
    """Make the running server accept and refuse the keys that the depot says."""
    from fedwatt.deploy.control import Control

    with Control(shared.flower_of(depot, address)) as control:
        if not shared.apply_depot(control):
            console.print("The server already accepts the depot's vehicles and no others.")
