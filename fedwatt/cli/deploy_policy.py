"""`fedwatt deploy policy`: what a vehicle answers, whoever asks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli import deploy_shared as shared
from fedwatt.cli.console import console, plain_table

if TYPE_CHECKING:
    from fedwatt.deploy.policy import Policy

app = typer.Typer(help="What a vehicle answers, whoever asks.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="Folder of the vehicle's keys, with policy.toml.")]
Owner = Annotated[Path, typer.Option("--owner", help="Folder of owner.key, which signs policies.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="A rule, such as smallest_sum=10; repeatable.")
]
OpenPolicy = Annotated[
    bool, typer.Option("--open", help="Allow whatever is asked: for trials on nobody's data.")
]


@app.command("write")
def write(
    folder: Folder,
    owner: Owner = shared.DEPOT,
    rules: Settings = None,
    open_: OpenPolicy = False,
) -> None:
    """Write a policy into a vehicle's folder and sign it; without --set the safe defaults."""
    from dataclasses import replace

    from fedwatt.deploy import policy as policies
    from fedwatt.runs.config import override
    from fedwatt.settings import from_table

    table = override({"deploy": {}}, [f"deploy.{rule}" for rule in rules or ()])["deploy"]
    base = policies.OPEN if open_ else policies.Policy()
    given = from_table(policies.Policy, table, policies.POLICY)
    chosen = replace(base, **{name: getattr(given, name) for name in table})
    policies.install(chosen, folder, owner)
    console.print(f"{folder / policies.POLICY}: written and signed.")
    _show(chosen)


@app.command("sign")
def sign(folder: Folder, owner: Owner = shared.DEPOT) -> None:
    """Sign a policy as it stands, after it was edited."""
    from fedwatt.deploy import policy as policies

    policies.from_text((folder / policies.POLICY).read_text(encoding="utf-8"))
    policies.sign(folder, owner)
    console.print(f"{folder / policies.POLICY} is signed.")


@app.command("check")
def check(
    folder: Folder,
    config: Annotated[
        Path | None, typer.Option("--config", help="A configuration that it is to allow.")
    ] = None,
) -> None:
    """Check a policy's signature, say what differs from the defaults, and what a run would meet."""
    from fedwatt.deploy.guard import Guard
    from fedwatt.deploy.ledger import Ledger
    from fedwatt.deploy.policy import POLICY, Refusal, on_board
    from fedwatt.runs.config import from_tables, read_config

    found = on_board(folder)
    there = (folder / POLICY).exists()
    console.print(f"{folder / POLICY}: {'signed by its owner' if there else 'none, so defaults'}.")
    _show(found)
    if config is None:
        return
    asked = from_tables(read_config(config))
    try:
        Guard(found, Ledger(folder)).configuration(asked)
    except Refusal as refusal:
        console.print(f"{config} would be refused, rule '{refusal.rule}': {refusal}.")
        raise typer.Exit(1) from None
    but = ", but for its routes" if asked.deploy.routes and not found.routes else ""
    console.print(f"{config} would be answered{but}, as far as it says what it will ask.")


@app.command("explain")
def explain(folder: Folder) -> None:
    """Say in sentences what a vehicle with this folder answers."""
    from dataclasses import fields

    from fedwatt.deploy.policy import on_board

    found = on_board(folder)
    rows = [(one.name, getattr(found, one.name), one.metadata["meaning"]) for one in fields(found)]
    console.print(plain_table(("rule", "here", "meaning"), rows))


def _show(policy: "Policy") -> None:
    from fedwatt.deploy.policy import differences

    lines = differences(policy)
    console.print("It differs from the defaults in:" if lines else "It is the default policy.")
    for line in lines:
        console.print(f"  {line}")
