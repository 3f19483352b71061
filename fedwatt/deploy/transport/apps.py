"""The ServerApp and the ClientApp that Flower starts, on its public interface.

The server's runs fedwatt's round loop on Flower's Grid. The vehicle's is for Flower's own
SuperNode, where that is used in place of fedwatt's node; its folders come from the node's
configuration, never from the server, and its key must be in OpenSSH's format
(`ssh-keygen -p -N "" -f COPY`):

    flower-supernode ... --node-config 'folder="/data/car-001" state="/var/lib/fedwatt" keys="..."'

A SuperNode executes the app that a run brings along, in a new process for every message. So it is
for servers that are trusted with code, and slower.
"""

import logging
from functools import cache
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedwatt.deploy import log, show_log
from fedwatt.deploy.plan.store import KeyStore
from fedwatt.deploy.transport import messages
from fedwatt.deploy.transport.channel import channel
from fedwatt.deploy.vehicle.handler import RequestHandler, open_vehicle
from fedwatt.errors import FedwattError

server = ServerApp()
vehicle = ClientApp()
SECRETS = "fedwatt"


@server.main()
def run_plan(grid: Grid, context: Context) -> None:
    """Carry out the plan of a key store into a run folder on this machine, and write its report."""
    # Not in a vehicle.
    from fedwatt.deploy.server.execute import LogLines, execute
    from fedwatt.report.write import Reporter
    from fedwatt.runs.observers import Observers
    from fedwatt.runs.trackers import trackers

    show_log()
    settings = context.run_config
    out = Path(str(settings["out"]))
    store = KeyStore(Path(str(settings["store"])))
    try:
        store.check_server()
        plan = store.plan()
        observers = Observers((LogLines(), Reporter(), *trackers(plan.config, out)))
        resume = bool(settings["resume"])
        execute(plan, store.signed_plan(), out, channel(grid), observers, resume=resume)
    except FedwattError as error:
        log.error("Error: %s", error)
        # Flower would add where in the code it happened.
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        raise
    log.info("report: %s", out / "report.html")


@cache
def _vehicle(folder: str, state: str, keys: str) -> RequestHandler:
    return open_vehicle(Path(folder), Path(state), Path(keys))


@vehicle.query()
def answer(message: Message, context: Context) -> Message:
    """Answer a message with the vehicle's request handler."""
    config = context.node_config
    handler = _vehicle(*(str(config[name]) for name in ("folder", "state", "keys")))
    # Every message may have its own process; secrets pass from one to the next.
    secrets = context.state.config_records.get(SECRETS, ConfigRecord()).get("secrets", b"")
    handler.secrets.restore(secrets if isinstance(secrets, bytes) else b"")
    reply = messages.content(
        handler.handle(messages.body_of(message, handler.acceptance.largest_message))
    )
    context.state[SECRETS] = ConfigRecord({"secrets": handler.secrets.export()})
    return Message(reply, reply_to=message)
