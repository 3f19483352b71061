"""A look at a vehicle before it joins, which sends nothing."""

import os
from collections.abc import Iterator
from pathlib import Path

from fedwatt.deploy.board import FLEET_KEY, Board
from fedwatt.deploy.connection import Connection, key_pair
from fedwatt.deploy.hours import until
from fedwatt.deploy.policy import differences
from fedwatt.deploy.privacy_ledger import LIFETIME_DELTA, PrivacyLedger, shown
from fedwatt.elevation.store import read_field, read_provenance
from fedwatt.errors import DataError, RunError, counted
from fedwatt.telemetry.store import read_vehicle
from fedwatt.windows import DataSettings
from fedwatt.windows.client import build_client


def describe_vehicle(
    folder: Path,
    state: Path,
    connection: Connection,
    field: Path | None,
    board: Board,
) -> Iterator[str]:
    """What a vehicle would join with; FedwattError where it could not."""
    client = build_client(read_vehicle(folder), DataSettings())
    windows = ", ".join(f"{len(ends):,} {split}" for split, ends in client.ends.items())
    yield f"Vehicle {client.name}: windows {windows}; features {', '.join(client.features)}."
    if field is not None:
        yield _describe_field(field, client.name)
    lines = differences(board.policy)
    yield "Its policy is the default one." if not lines else "Its policy has other rules:"
    yield from (f"  {line}" for line in lines)
    if board.hours is not None:
        away = board.hours.away_seconds()
        now = f"not now: {until(away)}" if away else "and so it would now"
        yield f"It answers at {board.hours}, {now}."
    if connection.key is not None:
        key_pair(connection.key)
        mode = connection.key.stat().st_mode & 0o077
        if mode:
            raise DataError(f"Others can read {connection.key}. 'chmod 600' it.")
        yield f"The key {connection.key} is in order."
        if not (connection.key.parent / FLEET_KEY).exists():
            yield f"It has no {FLEET_KEY} beside it, and so would train nothing by default."
    if connection.ca is not None:
        if not connection.ca.exists():
            raise DataError(f"There is no {connection.ca}; 'keys add' puts it beside the key.")
        yield f"The server must show a certificate signed by {connection.ca}."
    state.mkdir(parents=True, exist_ok=True)
    if not os.access(state, os.W_OK):
        raise RunError(f"Cannot write into {state}, where the vehicle is to remember.")
    yield _describe_spent(PrivacyLedger.of(state))
    yield f"It will remember in {state}. Nothing was sent."


def _describe_spent(ledger: PrivacyLedger) -> str:
    """What the vehicle has given away so far."""
    trainings = counted(len(ledger.entries()), "training")
    readers, server = (shown(ledger.epsilon(LIFETIME_DELTA, sampled=own)) for own in (True, False))
    return (
        f"It has taken part in {trainings}: ε = {readers} in all against those who see the models, "
        f"{server} against the server under masks, at δ = {LIFETIME_DELTA:g}."
    )


def _describe_field(file: Path, vehicle: str) -> str:
    """What lies on board, and which runs it is for."""
    size = f"The field {file} has {read_field(file).nodes:,} nodes."
    provenance = read_provenance(file)
    if provenance is None:
        return f"{size} It does not say whose trips taught it, so it may know test trips."
    if vehicle not in provenance.vehicles:
        return size
    return (
        f"{size} This vehicle's training trips taught it, so runs must have data.split = "
        f"{list(provenance.split)}, split_seed = {provenance.split_seed} and window = "
        f"{provenance.window}."
    )


def stock_command(
    folder: Path, state: Path, connection: Connection, field: Path | None = None, hours: str = ""
) -> list[str]:
    """The command of Flower's own node that would take part in the same way."""
    where = f'folder="{folder.resolve()}" state="{state.resolve()}"'
    if field is not None:
        where += f' field="{field.resolve()}"'
    if hours:
        where += f' hours="{hours}"'
    command = ["flower-supernode", "--superlink", connection.server, "--node-config", where]
    if connection.ca is None:
        return [*command, "--insecure"]
    command[-1] += f' keys="{connection.ca.parent.resolve()}"'
    command += ["--root-certificates", str(connection.ca)]
    return [*command, "--auth-supernode-private-key", str(connection.key)]
