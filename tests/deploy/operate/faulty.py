"""A small real fleet with one vehicle of each fault, and its depot; only the network is missing."""

from dataclasses import dataclass, replace
from pathlib import Path

from fedwatt.deploy.board import Board
from fedwatt.deploy.commands import Flower
from fedwatt.deploy.control import Node
from fedwatt.deploy.keys import Depot
from fedwatt.deploy.node import answer as node_answer
from fedwatt.deploy.policy import OPEN
from flwr.app import Message, RecordDict

from fedwatt.deploy.vehicle import Vehicle
from fedwatt.errors import DataError, RunError
from fedwatt.telemetry.store import vehicle_folders
from tests.deploy.fleets import config_text, deployed, make_fleet
from tests.deploy.loopback import KINDS, Loopback

GOOD, FAILS, REFUSES, LATE, REVOKED, BROKEN = (f"car-00{n}" for n in range(1, 7))
ROUNDS = 3


class Failing(Vehicle):
    """Cannot train: its disk is full, say."""

    def answer(self, kind: str, records: RecordDict) -> RecordDict:
        if kind == "train":
            raise DataError("secret words of the vehicle's own log")
        return super().answer(kind, records)


class Nodes(Loopback):
    """Vehicles behind the code that answers for them on the road, errors included."""

    def answer(self, message: Message) -> Message | None:
        node, kind = message.metadata.dst_node_id, KINDS[message.metadata.message_type]
        late = self.vehicles[node].folder.name == LATE and kind == "train"
        return None if late else node_answer(self.vehicles[node], message)


@dataclass
class FaultyFleet:
    run: Path
    flower: Flower
    up: bool = True

    def nodes(self, flower: Flower) -> list[Node]:
        """What the server would say of its vehicles."""
        if not self.up:
            raise RunError("No server answers at 127.0.0.1:9092.")
        accepted = self.flower.depot.registry().keys
        online = [name for name in accepted if name != LATE]
        return [
            Node(n, name, "online" if name in online else "offline", "2026-01-31 12:00:00", key)
            for n, (name, key) in enumerate(accepted.items())
        ]


def faulty_run(folder: Path, rounds: int = ROUNDS) -> FaultyFleet:
    """Five vehicles train; each but the first has a trouble of its own."""
    depot = Depot(folder / "depot")
    depot.create(["127.0.0.1"])
    for name in (GOOD, FAILS, REFUSES, LATE, REVOKED):
        depot.add_vehicle(name)
    fleet = make_fleet(folder / "fleet", 5)
    strict = Board(replace(OPEN, fewest_trained=10**6))
    vehicles = {}
    for node, path in enumerate(vehicle_folders(fleet), start=1):
        board = strict if path.name == REFUSES else Board(OPEN)
        kind = Failing if path.name == FAILS else Vehicle
        vehicles[node] = kind(path, folder / "state" / path.name, board=board)

    text = config_text(fleet, rounds=rounds).replace("vehicles = 4", "vehicles = 5")
    text = text.replace("participation = 0.7", "participation = 1.0")
    text = text.replace("round_seconds = 5", "rest_after = 0\nround_seconds = 0.3")
    deployed(text, Nodes(vehicles), folder / "run")
    depot.revoke_vehicle(REVOKED)
    return FaultyFleet(folder / "run", Flower(depot))
