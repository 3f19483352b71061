"""The ClientApp for Flower's own SuperNode, where that is used in place of ours.

The vehicle's folders come from the node's own configuration, never from the server:

    flower-supernode ... --node-config 'folder="/data/car-001" state="/var/lib/fedwatt-vehicle"'

and, where features are read from a field on board, field="/data/field.parquet".
"""

from functools import cache
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from fedwatt.deploy.messages import MESSAGE_TYPES
from fedwatt.deploy.node import answer
from fedwatt.deploy.vehicle import Vehicle

app = ClientApp()

SECRETS = "fedwatt.secure"


@cache
def _vehicle(folder: str, state: str, field: str | None) -> Vehicle:
    return Vehicle(Path(folder), Path(state), None if field is None else Path(field))


def _answer(message: Message, context: Context) -> Message:
    config = context.node_config
    field = str(config["field"]) if "field" in config else None
    vehicle = _vehicle(str(config["folder"]), str(config["state"]), field)
    # Every message may have a process of its own; secrets of a secure sum go from one to the next.
    secrets = context.state.config_records.get(SECRETS, ConfigRecord())
    vehicle.secrets.take_over({name: secrets[name] for name in secrets})
    reply = answer(vehicle, message)
    context.state[SECRETS] = ConfigRecord(dict(vehicle.secrets.handed_on()))
    return reply


for _message_type in MESSAGE_TYPES.values():
    _category, _, _action = _message_type.partition(".")
    getattr(app, _category)(_action or "default")(_answer)
