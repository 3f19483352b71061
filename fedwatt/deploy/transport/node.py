"""A vehicle's node: Flower's SuperNode protocol with the installed request handler only.

Flower's own SuperNode downloads the app of a run and executes it. A vehicle must not execute what
a server sends, so this node speaks the same protocol (`client`) and gives every message to the
handler that is installed.
"""

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from flwr.app import Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2
from flwr.proto.node_pb2 import Node

from fedwatt.deploy import log
from fedwatt.deploy.transport import fast_path_is_on, messages
from fedwatt.deploy.transport.client import (
    HEARD_HEADER,
    WAIT_HEADER,
    WAIT_SECONDS,
    BusyError,
    Connection,
    FleetClient,
    RefusedError,
    RunOverError,
    TooLongError,
    UntrustedError,
    parsed,
)
from fedwatt.errors import DataError, RunError

Handle = Callable[[bytes], bytes]
RECONNECT_SECONDS = 1.0
LONGEST_RECONNECT_SECONDS = 8.0
FIRST_PAUSE = 0.1
"""Seconds between a reply and the first poll for the next request."""
LONGER = 1.5
"""Times the pause before: polls come late by a third of the time since the last request at most."""
RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 5.0, 5.0)
"""Pauses before a request is sent again; then the connection counts as lost."""
PART_SECONDS = 120.0
"""For which a part of a message may be on its way after its announcement."""
BUSY_SECONDS = 30.0
"""Pause after the server asked to wait."""


def serve(
    handle: Handle,
    connection: Connection,
    *,
    name: str,
    largest: int,
    poll_seconds: float = 30.0,
    patience_seconds: float = 120.0,
    goes_on: Callable[[], bool] = lambda: True,
) -> None:
    """Answer the server's requests for as long as `goes_on`, reconnecting when it was lost.

    Requests of more than `largest` bytes are dropped. A server that was just started, or has not
    noticed that this vehicle was cut off, refuses its key as it refuses a wrong one, so a refusal
    is final only after `patience_seconds`.
    """
    since: float | None = None  # when the server first refused the key
    silent = False
    pause = RECONNECT_SECONDS
    while goes_on():
        try:
            with (
                FleetClient(connection) as client,
                Session(client, handle, largest, goes_on) as session,
            ):
                log.info("%s is connected to %s", name, connection.server)
                since = None
                silent = False
                pause = RECONNECT_SECONDS
                session.answer_all(poll_seconds)
        except UntrustedError as error:
            raise RunError(f"{connection.server} is not to be trusted: {error}.") from error
        except RefusedError as error:
            now = time.monotonic()
            if now - (since or now) >= patience_seconds:
                raise RunError(
                    f"{connection.server} does not accept this vehicle's key: {error}. It also "
                    "refuses a key whose vehicle has a wrong clock."
                ) from error
            if since is None:
                since = now
                log.warning(
                    "%s does not accept this vehicle's key or clock yet; giving up in %.0f s",
                    connection.server,
                    patience_seconds,
                )
        except ConnectionError:
            if not silent:
                silent = True
                log.warning("%s does not answer; trying until it does", connection.server)
        if goes_on():  # thousands of vehicles come back at different times
            time.sleep(pause + random.uniform(0.0, pause))
            pause = min(2 * pause, LONGEST_RECONNECT_SECONDS)


class Session:
    """An activated node; a context manager that activates and deactivates it."""

    def __init__(
        self,
        client: FleetClient,
        handle: Handle,
        largest: int,
        goes_on: Callable[[], bool],
    ) -> None:
        self.client = client
        self.handle = handle
        self.largest = largest
        self.goes_on = goes_on
        self.node = Node()
        self.single = False
        """Whether the server sends and takes single-request messages: the last request was one."""
        self.heard = -WAIT_SECONDS
        """When a poll last counted as a heartbeat."""
        self.polling = False
        self._ended = threading.Event()

    def __enter__(self) -> "Session":
        activate = fleet_pb2.ActivateNodeRequest(
            public_key=self.client.public_key,
            heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL,
        )
        content, _ = self.client.call("activate-node", activate)
        answer = parsed(fleet_pb2.ActivateNodeResponse, content)
        self.node = Node(node_id=answer.node_id)
        threading.Thread(target=self._send_heartbeats, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        with suppress(Exception):  # the server is gone, or has noticed
            request = fleet_pb2.DeactivateNodeRequest(node_id=self.node.node_id)
            self.client.call("deactivate-node", request)

    def answer_all(self, poll_seconds: float) -> None:
        """Poll and answer for as long as the vehicle goes on."""
        pause = first = min(FIRST_PAUSE, poll_seconds)
        while self.goes_on():
            began = time.monotonic()
            if self.answer_next():
                pause = first
            elif time.monotonic() - began < poll_seconds:  # a longer poll was held by the server
                time.sleep(pause)
                pause = min(LONGER * pause, poll_seconds)

    def answer_next(self) -> bool:
        """Poll once and answer the request, if there is one; return whether there was."""
        poll = fleet_pb2.PullMessagesRequest(node=self.node)
        headers = {}
        if fast_path_is_on():
            messages.want_parts(poll)
            # The first poll shows whether the server counts them as heartbeats.
            headers[WAIT_HEADER] = f"{WAIT_SECONDS if self.heard > 0 else 1.0:.0f}"
        most = self.largest + 2 * messages.ENVELOPE
        self.polling = True
        try:
            content, answered = self._call("pull-messages", poll, most=most, headers=headers)
        except TooLongError as error:
            log.error("a request was dropped: %s", error)
            return True
        finally:
            self.polling = False
        if HEARD_HEADER in answered:
            self.heard = time.monotonic()
        try:
            parts = messages.attached(content)
            if len(content) - sum(map(len, parts.values())) > 2 * messages.ENVELOPE:
                raise DataError("its announcement is too long")
            response = fleet_pb2.PullMessagesResponse.FromString(content)
            if not response.messages_list:
                return False
            self._answer(response, parts)
        except RunOverError:
            log.info("the run has ended; its request is dropped")
        except (RefusedError, UntrustedError, ConnectionError):
            raise
        except Exception as error:  # what Flower's code raises on odd messages has no end
            log.error("a request was dropped: %r", error)
            return False
        return True

    def _answer(self, response: Any, parts: messages.Parts) -> None:
        header = response.messages_list[0]
        run = header.metadata.run_id
        tree = response.message_object_trees[0]
        numbers = messages.numbers_in(tree)
        self.single = numbers <= parts.keys()
        if not self.single:
            parts = self._pull_parts(run, numbers)
            confirm = message_pb2.ConfirmMessageReceivedRequest(
                node=self.node, run_id=run, message_object_id=tree.object_id
            )
            self._call("confirm-message-received", confirm)
        body = messages.body_in({number: parts[number] for number in numbers}, self.largest)
        message = message_from_proto(header)
        try:
            reply = Message(messages.content(self.handle(body)), reply_to=message)
        except Exception:
            log.exception("a request failed")
            code = int(ErrorCode.CLIENT_APP_RAISED_EXCEPTION)
            reply = Message(Error(code=code, reason=""), reply_to=message)
        self._push(reply, run)

    def _pull_parts(self, run: int, numbers: set[str]) -> messages.Parts:
        """Return the objects of a message that are sent one by one."""
        most = self.largest + 2 * messages.ENVELOPE

        def pull(request: message_pb2.PullObjectRequest) -> Any:
            nonlocal most
            content, _ = self._call("pull-object", request, most=most)
            most -= len(content)
            return parsed(message_pb2.PullObjectResponse, content)

        return messages.pulled(numbers, pull, self.node, run, PART_SECONDS)

    def _push(self, reply: Message, run: int) -> None:
        """Send a reply: in one request where the server takes that, else part by part."""
        tree, parts = messages.taken_apart(reply)
        # Flower also has a field for how long it took, which would tell of the data.
        request = fleet_pb2.PushMessagesRequest(
            node=self.node,
            messages_list=[message_to_proto(remove_content_from_message(reply))],
            message_object_trees=[tree],
            clientapp_runtime_list=[0.0],
        )
        size = sum(map(len, parts.values()))
        if self.single and fast_path_is_on() and size <= messages.SINGLE_REQUEST_BYTES:
            messages.attach(request, parts)
        answer = parsed(fleet_pb2.PushMessagesResponse, self._call("push-messages", request)[0])
        for number in answer.objects_to_push:
            part = message_pb2.PushObjectRequest(
                node=self.node,
                run_id=run,
                session_id=answer.session_id,
                object_id=number,
                object_content=parts[number],
            )
            self._call("push-object", part)

    def _call(self, path: str, request: Any, **options: Any) -> tuple[bytes, Any]:
        """Return a response; repeat the request while the server is away for a moment or busy."""
        pauses = iter(RETRY_SECONDS)
        while True:
            try:
                return self.client.call(path, request, **options)
            except BusyError:
                if not self.goes_on():
                    raise
                log.info("the server asks to wait")
                time.sleep(BUSY_SECONDS)
            except ConnectionError:
                pause = next(pauses, None)
                if pause is None or not self.goes_on():
                    raise
                time.sleep(pause)

    def _send_heartbeats(self) -> None:
        """Tell the server that this vehicle is there, unless its polls do."""
        interval = 0.8 * HEARTBEAT_DEFAULT_INTERVAL
        while not self._ended.wait(interval * random.uniform(0.9, 1.1)):
            silent = time.monotonic() - self.heard
            if silent < (WAIT_SECONDS if self.polling else HEARTBEAT_DEFAULT_INTERVAL):
                continue
            request = heartbeat_pb2.SendNodeHeartbeatRequest(
                node=self.node, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL
            )
            try:
                self.client.call("send-node-heartbeat", request)
            except Exception as error:  # the next poll meets the same trouble and deals with it
                log.debug("heartbeat: %s", error)
