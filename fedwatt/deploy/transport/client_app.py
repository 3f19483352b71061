"""The ClientApp for Flower's own SuperNode, where that is used in place of fedwatt's node.

The vehicle's folders come from the node's configuration, never from the server:

    flower-supernode ... --node-config 'folder="/data/car-001" state="/var/lib/fedwatt" keys="..."'
"""

from functools import cache
from pathlib import Path
from typing import Final

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from fedwatt.deploy.transport import messages
from fedwatt.deploy.vehicle.handler import RequestHandler, open_vehicle

app = ClientApp()
SECRETS: Final = "fedwatt"


@cache
def _vehicle(folder: str, state: str, keys: str) -> RequestHandler:
    return open_vehicle(Path(folder), Path(state), Path(keys))


@app.query()
def answer(message: Message, context: Context) -> Message:
    """Answer a message with the vehicle's request handler."""
    config = context.node_config
    vehicle = _vehicle(*(str(config[name]) for name in ("folder", "state", "keys")))
    # Every message may have its own process; secrets pass from one to the next.
    secrets = context.state.config_records.get(SECRETS, ConfigRecord()).get("secrets", b"")
    vehicle.secrets.restore(secrets if isinstance(secrets, bytes) else b"")
    reply = messages.content(
        vehicle.handle(messages.body_of(message, vehicle.acceptance.largest_message))
    )
    context.state[SECRETS] = ConfigRecord({"secrets": vehicle.secrets.export()})
    return Message(reply, reply_to=message)
