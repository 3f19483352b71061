"""The ClientApp for Flower's own SuperNode, where that is used in place of ours.

The vehicle's folders come from the node's own configuration, never from the server:

    flower-supernode ... --node-config 'folder="/data/car-001" state="/var/lib/fedwatt-vehicle"'

and, where features are read from a field on board, field="/data/field.parquet"; keys="..." is the
folder of its keys and its policy, policy="..." another folder of its policy, and hours="..." the
hours in which it answers.
"""

from functools import cache
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from fedwatt.deploy.board import Board
from fedwatt.deploy.messages import MESSAGE_TYPES
from fedwatt.deploy.node import answer
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.telemetry.store import read_vehicle

app = ClientApp()

SECRETS = "fedwatt.secure"


@cache
def _vehicle(folder: str, state: str, *optional: str) -> Vehicle:
    *paths, hours = optional
    field, keys, policy = (Path(path) if path else None for path in paths)
    board = Board.of(keys, read_vehicle(Path(folder)).name, policy, hours)
    return Vehicle(Path(folder), Path(state), field, board)


def _answer(message: Message, context: Context) -> Message:
    config = context.node_config
    optional = (str(config.get(name, "")) for name in ("field", "keys", "policy", "hours"))
    vehicle = _vehicle(str(config["folder"]), str(config["state"]), *optional)
    # Every message may have a process of its own; secrets of a secure sum go from one to the next.
    secrets = context.state.config_records.get(SECRETS, ConfigRecord())
    vehicle.secrets.take_over({name: secrets[name] for name in secrets})
    reply = answer(vehicle, message)
    context.state[SECRETS] = ConfigRecord(dict(vehicle.secrets.handed_on()))
    return reply


for _message_type in MESSAGE_TYPES.values():
    _category, _, _action = _message_type.partition(".")
    getattr(app, _category)(_action or "default")(_answer)
