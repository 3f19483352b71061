"""A vehicle's requests: Flower's client, with whole messages, held looks and lasting connections.

Flower's session of a vehicle (`flower.open_session`) asks through this client and does not notice:

    a look for questions    may be held by the server for `WAIT_SECONDS`, and counts as a heartbeat
    a question              comes with all its parts in the answer to the look
    a reply                 waits here until all its parts are together, and goes in one request

A server that knows nothing of whole messages (`whole`) is asked for parts one by one, and so is
given the replies. A reply that is longer than `whole.MOST_BYTES` is sent in parts as well: one
that is cut off then goes on where it was. With a `bandwidth` all of it goes at that pace.
"""

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

import httpx
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
from flwr.proto.fleet_pb2 import (
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supernode.fleet_http_client import FleetHttpClient

from fedwatt.deploy.transport import whole
from fedwatt.deploy.transport.pace import Pace, paced

VEHICLE_KEEPS_SECONDS: Final = 60.0
"""How long a vehicle keeps an idle connection; the server keeps it for longer."""
WAIT_HEADER: Final = "fedwatt-wait"
WAIT_SECONDS: Final = 50.0
"""How long a look for questions may be held: less than the minute after which Flower takes a
vehicle for gone that was not heard of."""
FIRST_WAIT_SECONDS: Final = 1.0
"""How long the first one may be, which tells whether the server counts looks as heartbeats."""
ANSWER_SECONDS: Final = 30.0
"""For which a vehicle waits for the answer to anything, after a look was held."""
COLLECTED: Final = "collected on board"
"""In the place of the number of Flower's session: the parts are not on their way yet."""


class FleetClient(FleetHttpClient):
    """Flower's client of a vehicle, with fewer requests."""

    bandwidth: ClassVar[float] = 0.0
    """Bytes a second each way; 0: no limit."""

    def __init__(
        self,
        base_url: str,
        *,
        verify: Any = True,
        timeout: float = ANSWER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        **more: Any,
    ) -> None:
        super().__init__(base_url, verify=verify, timeout=timeout, **more)
        self._client.close()
        self._client = httpx.Client(
            verify=verify,
            timeout=httpx.Timeout(timeout, read=WAIT_SECONDS + timeout),
            follow_redirects=True,
            limits=httpx.Limits(keepalive_expiry=VEHICLE_KEEPS_SECONDS),
            event_hooks={"request": [self._would_wait]},
        )
        if self.bandwidth:
            up, down = Pace(self.bandwidth), Pace(self.bandwidth)
            self._client.event_hooks = {
                "request": [self._would_wait, partial(paced, pace=up)],
                "response": [partial(paced, pace=down)],
            }
        self.clock, self.lock = clock, threading.Lock()
        self.question: dict[str, bytes] = {}
        """Parts of the last question, if it came whole."""
        self.takes_whole = False
        """Whether the server knows whole messages: the last question was one."""
        self.reply = PushMessagesRequest()
        self.parts: dict[str, PushObjectRequest] = {}
        """A reply that waits for the rest of its parts, and those that are there."""
        self.heard = -float(HEARTBEAT_DEFAULT_INTERVAL)
        """When the server last answered a look that counts as a heartbeat."""
        self.looking = False
        self.spread = 0.0
        """Seconds over which the server would have its vehicles come back, were it gone."""
        self.away_until = 0.0

    def PullMessages(self, request: PullMessagesRequest) -> PullMessagesResponse:
        """Look for a question; it comes with its parts from a server that knows how."""
        self._wait_for_turn()
        whole.want(request)
        self.looking = True
        try:
            found = super().PullMessages(request)
        except httpx.TransportError:
            self.away_until = self.clock() + random.uniform(0.0, self.spread)
            raise
        finally:
            self.looking = False
        if found.HasField("reconnect"):
            self.heard, self.spread = self.clock(), float(found.reconnect.reconnect)
        if found.messages_list:
            self.question = whole.attached(found)
            self.takes_whole = bool(self.question)
        return found

    def SendNodeHeartbeat(self, request: SendNodeHeartbeatRequest) -> SendNodeHeartbeatResponse:
        """Tell the server that this vehicle is there, unless its looks do."""
        if self.clock() < self.away_until:
            raise httpx.ConnectError("the server is not asked before it is this vehicle's turn")
        silent = self.clock() - self.heard
        if silent < (WAIT_SECONDS if self.looking else HEARTBEAT_DEFAULT_INTERVAL):
            return SendNodeHeartbeatResponse(success=True)
        return super().SendNodeHeartbeat(request)

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:
        """A part of the question."""
        content = self.question.get(request.object_id)
        if content is None:
            return super().PullObject(request)
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(
        self, request: ConfirmMessageReceivedRequest
    ) -> ConfirmMessageReceivedResponse:
        """Let the server drop the question; one that came whole it has dropped itself."""
        if request.message_object_id not in self.question:
            return super().ConfirmMessageReceived(request)
        self.question = {}
        return ConfirmMessageReceivedResponse()

    def PushMessages(self, request: PushMessagesRequest) -> PushMessagesResponse:
        """Announce a reply; to a server that knows whole messages nothing is said yet."""
        if not self.takes_whole:
            return super().PushMessages(request)
        self.reply, self.parts = request, {}
        return PushMessagesResponse(objects_to_push=self._numbers(), session_id=COLLECTED)

    def PushObject(self, request: PushObjectRequest) -> PushObjectResponse:
        """A part of the reply, which is sent with the last of them."""
        if request.session_id != COLLECTED:
            return super().PushObject(request)
        with self.lock:
            self.parts[request.object_id] = request
            complete = self.parts.keys() == self._numbers()
        return self._push_reply() if complete else PushObjectResponse(stored=True)

    def _numbers(self) -> set[str]:
        """Of the parts that the reply has."""
        return {part.object_id for part in iterate_object_tree(self.reply.message_object_trees[0])}

    def _push_reply(self) -> PushObjectResponse:
        """Send the whole reply; then, part by part, whatever the server still wants of it."""
        request = PushMessagesRequest()
        request.CopyFrom(self.reply)
        contents = {number: part.object_content for number, part in self.parts.items()}
        if sum(map(len, contents.values())) <= whole.MOST_BYTES:
            whole.attach(request, contents)
        found = super().PushMessages(request)
        stored = True
        for number in found.objects_to_push:
            part = PushObjectRequest()
            part.CopyFrom(self.parts[number])
            part.session_id = found.session_id
            stored &= super().PushObject(part).stored
        return PushObjectResponse(stored=stored)

    def _wait_for_turn(self) -> None:
        """Let others go first where a server that was lost is to be asked again."""
        left = self.away_until - self.clock()
        if left > 0:
            time.sleep(left)

    def _would_wait(self, request: httpx.Request) -> None:
        """Tell the server that a look for questions may be held until there is one (`shortcut`)."""
        if request.url.path.endswith("/pull-messages"):
            seconds = WAIT_SECONDS if self.heard > 0 else FIRST_WAIT_SECONDS
            request.headers[WAIT_HEADER] = f"{seconds:.0f}"
