"""A small deployed fleet with one vehicle of each fault, and its key store, without a network."""

from dataclasses import dataclass
from pathlib import Path

from fedwatt.deploy.plan.certificates import (
    CERTIFICATE,
    KEY,
    OWNER,
    SERVER,
    private_bytes,
    write_certificate,
)
from fedwatt.deploy.plan.store import KeyStore
from fedwatt.deploy.transport.control import Node
from fedwatt.deploy.transport.processes import Flower
from fedwatt.deploy.vehicle.acceptance import Acceptance
from fedwatt.deploy.vehicle.handler import RequestHandler
from fedwatt.deploy.vehicle.messages import FAILED, failure
from fedwatt.errors import RunError
from fedwatt.files import write_secret
from fedwatt.telemetry.store import vehicle_folders
from tests.deploy.fleets import (
    OPEN,
    Loopback,
    config_text,
    credentials,
    deployed,
    make_fleet,
    owner,
    plan_of,
    signed,
)

GOOD, FAILS, REFUSES, LATE, REVOKED, BROKEN = (f"car-00{n}" for n in range(1, 7))
ROUNDS = 3


@dataclass
class FaultyFleet:
    run: Path
    flower: Flower
    up: bool = True

    def nodes(self, flower: Flower) -> list[Node]:
        """Return the vehicles that the server would list."""
        if not self.up:
            raise RunError("No server answers at 127.0.0.1:9092.")
        accepted = {name: key for key, (name, _) in self.flower.store.accepted().items()}
        online = [name for name in accepted if name != LATE]
        return [
            Node(n, name, "online" if name in online else "offline", key)
            for n, (name, key) in enumerate(accepted.items())
        ]


def make_store(folder: Path, *names: str) -> KeyStore:
    """Return a key store of the tests' owner with a server's key and some vehicles."""
    store = KeyStore(folder)
    key = credentials("server").key
    write_secret(folder / KEY, private_bytes(key))
    certificate = owner().issue("server", SERVER, key.public_key(), 100)
    write_certificate(folder / CERTIFICATE, certificate)
    write_certificate(folder / OWNER, owner().certificate)
    for name in names:
        write_certificate(folder / "part.pem", credentials(name).certificate)
        store.add_vehicle(folder / "part.pem")
    (folder / "part.pem").unlink(missing_ok=True)
    return store


def faulty_run(folder: Path, rounds: int = ROUNDS) -> FaultyFleet:
    """Four of five vehicles train; each but the first has a trouble of its own."""
    names = (GOOD, FAILS, REFUSES, LATE, REVOKED)
    store = make_store(folder / "store", *names)
    fleet = make_fleet(folder / "fleet", 5)
    vehicles = {}
    for node, path in enumerate(vehicle_folders(fleet), start=1):
        acceptance = Acceptance() if path.name == REFUSES else OPEN
        state = folder / "state" / path.name
        vehicles[node] = RequestHandler(path, state, credentials(path.name), acceptance)
    grid = Loopback(vehicles, names=dict(enumerate(names, start=1)))

    def tamper(kind: str, node: int, reply: bytes) -> bytes | None:
        if kind == "train" and names[node - 1] == FAILS:
            return failure(FAILED)
        return None if kind == "train" and names[node - 1] == LATE else reply

    grid.tamper = tamper
    text = config_text(fleet, rounds=rounds)
    text = text.replace("participation = 0.7", "participation = 1.0")
    text = text.replace("round_seconds = 5", "round_seconds = 0.3")
    deployed(text, grid, folder / "run")
    revoked = credentials(REVOKED).certificate.serial_number
    content = signed(text, revoked=[revoked])
    assert plan_of(content).revoked == {revoked}
    store.install_plan(content)
    return FaultyFleet(folder / "run", Flower(store))
