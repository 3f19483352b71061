"""`fedwatt deploy owner`, `request`, `sign`, `plan`, `show` and `add`: plans and certificates."""

from pathlib import Path
from typing import Annotated

import typer

from fedwatt.cli.console import console
from fedwatt.cli.data.shared import Out
from fedwatt.cli.options import Assignments, Config, Methods, Rounds, configuration

OwnerKey = Annotated[Path, typer.Option("--key", help="Sign with this private key of the owner.")]
Keys = Annotated[Path, typer.Option("--keys", help="Use this folder of keys and certificates.")]
StoreFolder = Annotated[Path, typer.Option("--store", help="Use this key store of the server.")]
STORE = Path("server")
DAYS_HELP = "Let it expire after so many days."
OWNER_KEY = Path("owner/key.pem")


def owner(
    out: Out = Path("owner"),
) -> None:
    """Make the owner's key and certificate."""
    from fedwatt.deploy.plan.certificates import create_owner

    create_owner(out)
    console.print(f"{out}: keep key.pem offline; owner.pem goes to the server and every vehicle.")


def request(
    name: Annotated[str, typer.Argument(help="Name of the vehicle, or of a server.")],
    keys: Keys,
    hostname: Annotated[
        list[str] | None,
        typer.Option("--hostname", help="Add a name or address of a server; repeatable."),
    ] = None,
) -> None:
    """Make a key here, and a request that the owner signs."""
    from fedwatt.deploy.plan.certificates import REQUEST, make_request

    fingerprint = make_request(name, keys, hostname or [])
    console.print(f"{name}: its key is {fingerprint}", soft_wrap=True)
    console.print(f"Send {keys / REQUEST} to the owner: 'fedwatt deploy sign' answers it.")


def sign(
    requests: Annotated[list[Path], typer.Argument(help="Requests, or folders that hold one.")],
    role: Annotated[str, typer.Option(help="Choose the role: vehicle or server.")] = "vehicle",
    key: OwnerKey = OWNER_KEY,
    days: Annotated[int, typer.Option(help=DAYS_HELP, min=1)] = 365,
) -> None:
    """Sign requests as the owner and print their fingerprints to compare."""
    from fedwatt.deploy.plan.certificates import (
        CERTIFICATE,
        OWNER,
        USES,
        Owner,
        fingerprint,
        write_certificate,
    )

    if role not in USES:
        raise typer.BadParameter("--role is 'vehicle' or 'server'.")
    signer = Owner.read(key)
    for path in requests:
        certificate = signer.sign_request(path, role, days)
        folder = path if path.is_dir() else path.parent
        write_certificate(folder / CERTIFICATE, certificate)
        write_certificate(folder / OWNER, signer.certificate)
        printed = fingerprint(certificate.public_key())  # type: ignore[arg-type]
        console.print(f"{folder / CERTIFICATE}: {role}, {printed}", soft_wrap=True)
        console.print(f"  serial number {certificate.serial_number:x}", soft_wrap=True)


def plan(
    config: Config = None,
    key: OwnerKey = OWNER_KEY,
    out: Out = Path("plan.json"),
    days: Annotated[float, typer.Option(help=DAYS_HELP)] = 90.0,
    revoke: Annotated[
        list[str] | None, typer.Option("--revoke", help="Revoke this serial number; repeatable.")
    ] = None,
    method: Methods = None,
    rounds: Rounds = None,
    assignments: Assignments = None,
) -> None:
    """Plan a run: resolve its configuration completely and sign it."""
    from fedwatt.deploy.plan.certificates import Owner
    from fedwatt.deploy.plan.plan import make_plan, read_plan
    from fedwatt.deploy.server.execute import refuse_undeployable
    from fedwatt.files import write_bytes

    chosen = configuration(
        config,
        out,
        resume=False,
        methods=method,
        options={"training.rounds": rounds},
        assignments=assignments,
    )
    try:
        revoked = [int(serial, 16) for serial in revoke or []]
    except ValueError as error:
        raise typer.BadParameter(
            "--revoke takes a serial number as 'fedwatt deploy sign' prints it."
        ) from error
    refuse_undeployable(chosen)
    signer = Owner.read(key)
    signed = make_plan(chosen, signer, days=days, revoked=revoked)
    write_bytes(out, signed)
    for line in read_plan(signed, signer.certificate).lines()[:7]:
        console.print(line, soft_wrap=True)
    console.print(f"{out}: signed; give it to the server ('fedwatt deploy add {out}').")


def show(
    plan: Annotated[Path, typer.Argument(help="Signed plan.")],
    keys: Keys,
) -> None:
    """Verify a plan, show it completely, and check it against acceptance.toml."""
    from fedwatt.deploy.plan.certificates import OWNER, read_certificate
    from fedwatt.deploy.plan.plan import read_plan
    from fedwatt.deploy.vehicle.acceptance import FILE, Acceptance
    from fedwatt.errors import RunError

    try:
        signed = plan.read_bytes()
    except OSError as error:
        raise RunError(f"Cannot read {plan}: {error}.") from error
    verified = read_plan(signed, read_certificate(keys / OWNER))
    for line in verified.lines():
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    Acceptance.read(keys / FILE).accept(verified, 0.0)
    console.print("This vehicle accepts the plan.")


def add(
    files: Annotated[
        list[Path], typer.Argument(help="Certificates of vehicles, or a signed plan.")
    ],
    store: StoreFolder = STORE,
) -> None:
    """Add vehicles' certificates or a new plan to the server's key store."""
    from fedwatt.deploy.plan.certificates import CERTIFICATE
    from fedwatt.deploy.plan.store import KeyStore

    key_store = KeyStore(store)
    for file in files:
        if file.suffix == ".json":
            plan = key_store.install_plan(file.read_bytes())
            console.print(f"{store}: plan {plan.digest[:16]}")
        else:
            name = key_store.add_vehicle(file / CERTIFICATE if file.is_dir() else file)
            console.print(f"{store}: vehicle {name}")


def quickstart(
    folder: Annotated[Path, typer.Argument(help="New folder for the trial.")] = Path("trial"),
    rounds: Annotated[int, typer.Option(help="Set the number of rounds.", min=1)] = 5,
) -> None:
    """Make a local trial: keys, a plan with secure aggregation, three vehicles."""
    from fedwatt.deploy.plan.quickstart import make_trial, trial_configuration

    names = make_trial(folder, trial_configuration(rounds))
    console.print(
        "This is a trial: one machine has all keys, and the owner's key was discarded. docs/"
        "deploy.md shows how to deploy one."
    )
    console.print("Next, each in its own terminal:")
    console.print(f"  fedwatt deploy server --store {folder}/server", soft_wrap=True)
    for name in names:
        console.print(
            f"  fedwatt deploy vehicle {folder}/fleet/{name} --keys {folder}/keys/{name} --state "
            f"{folder}/state/{name}",
            soft_wrap=True,
        )
    console.print(f"  fedwatt deploy run --store {folder}/server --out runs/trial", soft_wrap=True)
