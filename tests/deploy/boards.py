"""Vehicles with the default policy, for the windows of the small fleet, and keys of a depot."""

from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from fedwatt.deploy.board import Board
from fedwatt.deploy.policy import Policy
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.privacy.secure.identity import CURVE, Identity, Trust, public_bytes, vouch
from fedwatt.telemetry.store import read_vehicle, vehicle_folders
from tests.deploy.loopback import Loopback

AUTHORITY = ec.derive_private_key(11, CURVE)
FLEET_KEY = bytes(range(32))
STRICT = Policy(window=10, stride=20, fewest_windows=5, fewest_trained=16)
"""The defaults but for the data settings of `tests.deploy.fleets.CONFIG` and its batches of 16."""


def board(name: str, number: int, policy: Policy = STRICT) -> Board:
    key = ec.derive_private_key(100 + number, CURVE)
    voucher = vouch(AUTHORITY, name, public_bytes(key.public_key()))
    return Board(policy, Identity(key, voucher), Trust(AUTHORITY.public_key()), FLEET_KEY)


def guarded(fleet: Path, state: Path, **rules: object) -> Loopback:
    """One node a vehicle, each with the default policy but for `rules`."""
    policy, vehicles = replace(STRICT, **rules), {}
    for number, folder in enumerate(vehicle_folders(fleet), start=1):
        name = read_vehicle(folder).name
        own = board(name, number, policy)
        vehicles[number] = Vehicle(folder, state / folder.name, board=own)
    return Loopback(vehicles)
