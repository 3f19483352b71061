"""A vehicle's connection: Flower's SuperNode protocol with the installed code and no other.

Flower's own SuperNode downloads the app of a run and executes it, starts a process for every
message and looks for one every three seconds. A vehicle must not execute what a server sends, since
nothing it declares would then hold; so this node takes Flower's connection (its sessions, TLS and
node keys), looks often, and answers every message with the `Vehicle` that is installed on board.
"""

import logging
import os
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NoReturn

from flwr.app import Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import ErrorCode
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supercore.retry import http_retry
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode import fleet_http_connection

from fedwatt.deploy.connection import Connection
from fedwatt.deploy.messages import MESSAGE_TYPES
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.errors import FedwattError, RunError

log = logging.getLogger("fedwatt.deploy")

KINDS = {message_type: kind for kind, message_type in MESSAGE_TYPES.items()}
NO_ANSWER = "The vehicle could not answer; its own log says why."
"""All that a server learns of a failure on board: a message could quote data."""
RECONNECT_SECONDS = 2.0
LONGEST_RETRY_SECONDS: Final = 5.0
"""Between attempts to reach a server that does not answer; Flower would wait up to 20."""
FIRST_PAUSE: Final = 0.1
"""Seconds between a reply and the first look for the next question."""
SOON: Final = 0.05
"""Seconds to wait for the parts of a message that was announced and is still on its way."""
NOT_ACTIVATED = "[code: 2004]"
"""How Flower says that a key is unknown, or that its last connection is not over yet."""


def drive(
    vehicle: Vehicle,
    connection: Connection,
    *,
    poll_seconds: float = 1.0,
    patience_seconds: float = 120.0,
    goes_on: Callable[[], bool] = lambda: True,
) -> None:
    """Answer the server's questions for as long as `goes_on`, connecting again when it was lost.

    It looks for the next question soon after the last one, then ever less often, at least every
    `poll_seconds`: a round follows a round at once, and an idle fleet leaves the server in peace.

    A server that was started again does not know its vehicles for a moment; Flower would then end
    this process, and here it connects anew. A server that has not yet noticed that this vehicle was
    cut off, or is still registering keys after its start, refuses its key as it refuses a wrong
    one, so a refusal is final only when `patience_seconds` are over.
    """
    _stay_alive()
    flower = logging.getLogger("flwr")
    since: float | None = None  # the server has refused the key
    while goes_on():
        silence = _Silence(connection.server)
        flower.addHandler(silence)
        try:
            with connection.open() as session:
                log.info("vehicle %s is connected to %s", vehicle.name, connection.server)
                since = None
                TaskIdentity.node_id = session[0]
                _serve(vehicle, session, poll_seconds, goes_on)
            if goes_on():
                log.warning("lost the connection to %s; trying again", connection.server)
        except NotConnectedError as error:
            refused, now = NOT_ACTIVATED in str(error), time.monotonic()
            if not refused or now - (since or now) >= patience_seconds:
                who = "does not accept this vehicle's key" if refused else "is not to be trusted"
                raise RunError(f"{connection.server} {who}: {error}.") from error
            if since is None:
                since = now
                log.warning(
                    "%s does not accept this vehicle's key yet: it may still be registering keys, "
                    "or not have noticed that the vehicle was cut off; giving up in %.0f s",
                    connection.server,
                    patience_seconds,
                )
        finally:
            flower.removeHandler(silence)
        if goes_on():
            time.sleep(RECONNECT_SECONDS)


class NotConnectedError(Exception):
    """The server refused the key, or is not who it should be."""


def _not_connected(code: int, message: str) -> NoReturn:
    """In the place of Flower's exit, which ends the process five seconds later in any case."""
    lines = [line.strip().rstrip(".") for line in message.splitlines() if "[" in line]
    raise NotConnectedError(lines[-1] if lines else message.strip().rstrip("."))


def _stay_alive() -> None:
    """Keep Flower from ending the process when a server does not know this vehicle (any more)."""
    vars(fleet_http_connection)["flwr_exit"] = _not_connected
    for module in (http_retry, fleet_http_connection):
        vars(module)["os"] = SimpleNamespace(getpid=os.getpid, kill=lambda pid, number: None)
    # It sleeps for a second more than this, to be ended meanwhile.
    vars(http_retry)["FORCE_EXIT_TIMEOUT_SECONDS"] = -1
    vars(http_retry)["MAX_RETRY_DELAY"] = LONGEST_RETRY_SECONDS


class _Silence(logging.Handler):
    """Hears Flower try again and again, and says it once."""

    def __init__(self, server: str) -> None:
        super().__init__(logging.WARNING)
        self.server = server
        self.reported = False

    def emit(self, record: logging.LogRecord) -> None:
        """Tell the first time."""
        if not self.reported and "retrying" in record.getMessage():
            self.reported = True
            log.warning("%s does not answer; trying until it does", self.server)


def _serve(
    vehicle: Vehicle, session: Any, poll_seconds: float, goes_on: Callable[[], bool]
) -> None:
    _, receive, send, _, _, pull_object, push_object, confirm = session
    pause = first = min(FIRST_PAUSE, poll_seconds)
    while goes_on():
        received = receive()
        if received is None:
            time.sleep(pause)
            pause = min(1.3 * pause, poll_seconds)
            continue
        pause = first
        envelope, tree = received
        run = envelope.metadata.run_id
        try:
            message = pull_and_inflate_object_from_tree(
                tree,
                partial(pull_object, run),
                partial(confirm, run),
                return_type=Message,
                initial_backoff=SOON,
                backoff_cap=1.0,
            )
            message.metadata.__dict__["_message_id"] = tree.object_id
            reply = answer(vehicle, message)
            reply.metadata.__dict__["_message_id"] = reply.object_id
            with no_object_id_recompute():
                objects, outline = get_all_nested_objects(reply), get_object_tree(reply)
                header = remove_content_from_message(reply)
                # Flower would also like to know how long it took; that would tell of the data.
                wanted, upload = send(header, outline, 0.0)
                push_objects(objects, partial(push_object, run, upload), object_ids_to_push=wanted)
        except RunNotRunningException:
            log.info("the run has ended; its question is dropped")


def answer(vehicle: Vehicle, message: Message) -> Message:
    """A vehicle's reply to a message; where it has none, an error that tells nothing."""
    kind = KINDS.get(message.metadata.message_type, message.metadata.message_type)
    try:
        return Message(vehicle.answer(kind, message.content), reply_to=message)
    except FedwattError as error:
        log.error("question '%s': %s", kind[:40], error)
    except Exception:
        log.exception("question '%s' failed", kind[:40])
    failed = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=NO_ANSWER)
    return Message(failed, reply_to=message)
