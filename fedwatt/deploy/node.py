"""A vehicle's connection: Flower's SuperNode protocol with the installed code and no other.

Flower's own SuperNode downloads the app of a run and executes it, starts a process for every
message and looks for one every three seconds. A vehicle must not execute what a server sends, since
nothing it declares would then hold; so this node takes Flower's connection (its sessions, TLS and
node keys), looks often, and answers every message with the `Vehicle` that is installed on board.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
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
from flwr.supernode.fleet_http_connection import http_request_response

from fedwatt.deploy.board import Vehicle
from fedwatt.deploy.messages import MESSAGE_TYPES
from fedwatt.errors import DataError, FedwattError, RunError

log = logging.getLogger("fedwatt.deploy")

KINDS = {message_type: kind for kind, message_type in MESSAGE_TYPES.items()}
NO_ANSWER = "The vehicle could not answer; its own log says why."
"""All that a server learns of a failure on board: a message could quote data."""
RECONNECT_SECONDS = 2.0
FIRST_PAUSE: Final = 0.1
"""Seconds between a reply and the first look for the next question."""
SOON: Final = 0.05
"""Seconds to wait for the parts of a message that was announced and is still on its way."""
NOT_ACTIVATED = "[code: 2004]"
"""How Flower says that a key is unknown, or that its last connection is not over yet."""


@dataclass(frozen=True)
class Connection:
    """Where the server is and how it and the vehicle know each other."""

    server: str
    """host:port"""
    ca: Path | None = None
    """Certificate that the server's is signed with; None: no TLS, for tests on one machine."""
    key: Path | None = None
    """The vehicle's private key; None: a server that asks for none."""

    def open(self) -> Any:
        """Flower's session with the server, as a context manager."""
        return http_request_response(
            self.server,
            insecure=self.ca is None,
            root_certificates=None if self.ca is None else str(self.ca),
            authentication_keys=None if self.key is None else key_pair(self.key),
        )


def key_pair(path: Path) -> tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]:
    """A vehicle's keys from its private key file; DataError if they are none."""
    try:
        private = load_ssh_private_key(path.read_bytes(), password=None)
    except FileNotFoundError as error:
        raise DataError(f"There is no key {path}. 'fedwatt deploy keys add' makes one.") from error
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} is not a private key without a passphrase: {error}.") from error
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise DataError(f"{path} is no elliptic-curve key. 'fedwatt deploy keys add' makes one.")
    return private, private.public_key()


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
    for module in (http_retry, fleet_http_connection):
        vars(module)["os"] = SimpleNamespace(getpid=os.getpid, kill=lambda pid, number: None)
    last = time.monotonic()
    while goes_on():
        reasons = _Reasons()
        try:
            with reasons.heard(), connection.open() as session:
                log.info("vehicle %s is connected to %s", vehicle.name, connection.server)
                TaskIdentity.node_id = session[0]
                try:
                    _serve(vehicle, session, poll_seconds, goes_on)
                finally:
                    last = time.monotonic()
        except SystemExit as error:
            # Flower's way to say that the server refused the key, or is not who it should be.
            refused = NOT_ACTIVATED in reasons.text
            if not refused or time.monotonic() - last >= patience_seconds:
                who = "does not accept this vehicle's key" if refused else "is not to be trusted"
                raise RunError(f"{connection.server} {who}: {reasons.short}.") from error
            left = patience_seconds - (time.monotonic() - last)
            log.warning(
                "%s does not accept this vehicle's key yet (it may still be registering keys); "
                "giving up in %.0f s",
                connection.server,
                left,
            )
        if goes_on():
            log.warning("not connected to %s; trying again", connection.server)
            time.sleep(RECONNECT_SECONDS)


class _Reasons(logging.Handler):
    """Listens to why Flower gives up."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what is said."""
        self.text += record.getMessage() + "\n"

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Listen for a while."""
        flower = logging.getLogger("flwr")
        flower.addHandler(self)
        try:
            yield
        finally:
            flower.removeHandler(self)

    @property
    def short(self) -> str:
        """The line that says it."""
        lines = [line.strip() for line in self.text.splitlines() if "[" in line]
        return lines[-1].rstrip(".") if lines else "Flower gives no reason"


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
