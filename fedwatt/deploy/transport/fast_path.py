"""The SuperLink's fast path: the four frequent requests, answered by Flower's own handlers.

Flower passes every request through nine layers of middleware, which take many times as long as the
handler itself. Here a request is authenticated by Flower's own functions and given to Flower's own
handler. Whatever does not end well, a wrong signature for one, goes the ordinary way from its
beginning, so that Flower says what is wrong.

    POST /v1/fleet/pull-messages      a vehicle's poll: held until there is a message for it
    POST /v1/fleet/push-messages      a vehicle's reply, with its objects
    POST /v1/runtime/push-messages    a run's requests, with their objects
    POST /v1/runtime/pull-messages    replies for a run, with their objects

A held poll counts as a heartbeat, and its response says so. Flower looks through all messages of
its state at every poll; here only polls of vehicles that a message waits for reach it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, Status
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.runtime_pb2 import (
    PullAppMessagesRequest,
    PullAppMessagesResponse,
    PushAppMessagesRequest,
)
from flwr.server.superlink.utils import check_abort
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.dependencies.task import authenticate_task
from flwr.supercore.error.base import FlowerError
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.superlink.routers.fleet.node_auth import authenticate_node
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from fedwatt.deploy import log
from fedwatt.deploy.transport import messages
from fedwatt.deploy.transport.client import HEARD_HEADER, WAIT_HEADER, WAIT_SECONDS
from fedwatt.deploy.transport.request_filter import SMALL

POLL = "/v1/fleet/pull-messages"
OF_RUNS = "/v1/runtime/"
PIECE = 32_768
"""Bytes of a response that are written at once: a connection keeps room for its longest piece."""
SLICE = 256
"""Requests whose replies are looked for before their bytes are counted; Flower goes through all of
its messages for each slice."""
NOT_RUNNING = [Status.PENDING, Status.STARTING, Status.FINISHED]

Answer = Callable[[Request, bytes], bytes]


class AnnouncementTooLongError(Exception):
    """An announcement that is longer than that of any reply."""


class FastPath:
    """An ASGI application between the request filter and Flower's own."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.waiting: dict[int, asyncio.Future[bool]] = {}
        """Polls that wait for a message, by node."""
        self.addressed: Counter[int] = Counter()
        """Messages that may wait for each node."""
        self.announced = True
        """Whether every message to a vehicle was announced here."""
        self.answers: dict[str, Answer] = {
            POLL: self._poll,
            "/v1/fleet/push-messages": _vehicle_reply,
            "/v1/runtime/push-messages": _run_requests,
            "/v1/runtime/pull-messages": _run_replies,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        post = scope["type"] == "http" and scope["method"] == "POST"
        answer = self.answers.get(scope["path"]) if post else None
        if answer is None:
            await self.app(scope, receive, send)
            return
        request = Request({**scope, "app": self.app}, receive)
        headers = [(b"content-type", b"application/protobuf")]
        try:
            body = await request.body()  # no longer than the filter let in
        except ClientDisconnect:
            return
        try:
            status = 200
            content = await self._answered(answer, request, body, receive, headers)
        except AnnouncementTooLongError as error:
            status = 413
            content = str(error).encode()
        except Exception as error:
            self._note_failure(scope["path"], error)
            await self.app(scope, _replayed(body, receive), send)
            return
        headers.append((b"content-length", b"%d" % len(content)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for at in range(0, len(content) or 1, PIECE):
            more = at + PIECE < len(content)
            piece = content[at : at + PIECE]
            await send({"type": "http.response.body", "body": piece, "more_body": more})

    async def _answered(
        self,
        answer: Answer,
        request: Request,
        body: bytes,
        receive: Receive,
        headers: list[tuple[bytes, bytes]],
    ) -> bytes:
        """Return the body of the response; a poll may be held."""
        request.state.recipients = []
        content = answer(request, body)
        for recipient in request.state.recipients:
            self.announce(recipient)
        seconds = _patience(request) if request.url.path == POLL and self.announced else 0.0
        if not seconds:
            return content
        node = request.state.protobuf_request.node.node_id
        _count_heartbeat(request, node)
        if not content:
            with self.expecting(node) as released:
                if await _released(released, receive, seconds):
                    content = answer(request, body)  # verifies the key once more
            _count_heartbeat(request, node)
        headers.append((HEARD_HEADER.encode(), b"1"))
        return content

    def _poll(self, request: Request, body: bytes) -> bytes:
        """Return the next message to a vehicle with its objects; empty if there is none."""
        message = PullMessagesRequest.FromString(body)
        state = _vehicle_state(request, message)
        node = message.node.node_id
        messages_waiting = self.addressed.pop(node, 0)
        if not messages_waiting and self.announced:
            return b""
        response = fleet_handlers.pull_messages(message, state, state.object_store)
        content = bytes(response.SerializeToString())
        if not response.messages_list:
            return content
        if messages_waiting > 1:
            self.addressed[node] = messages_waiting - 1
        run = response.messages_list[0].metadata.run_id
        if not messages.wants_parts(body) or check_abort(run, NOT_RUNNING, state):
            return content  # the vehicle then asks which objects are missing
        return content + messages.encoded(_taken(state, run, response.message_object_trees[0]))

    def _note_failure(self, path: str, error: Exception) -> None:
        """Let polls ask Flower from now on if a run's request took its ordinary path.

        Requests of vehicles do not count: anybody can send one that cannot be read.
        """
        answered = isinstance(error, FlowerError | HTTPException)
        if self.announced and path.startswith(OF_RUNS) and not answered:
            self.announced = False
            log.warning("%s takes Flower's ordinary path, which is slower: %r", path, error)

    @contextmanager
    def expecting(self, node: int) -> "Iterator[asyncio.Future[bool]]":
        """Give a future that is true when there is a message for a node.

        An earlier poll of the same vehicle is ended.
        """
        released: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if node in self.waiting:
            _end(self.waiting[node], False)
        self.waiting[node] = released
        try:
            yield released
        finally:
            if self.waiting.get(node) is released:
                del self.waiting[node]

    def announce(self, node: int) -> None:
        """Count a message for a node, and let its poll be answered."""
        self.addressed[node] += 1
        if node in self.waiting:
            _end(self.waiting[node], True)


async def _released(released: "asyncio.Future[bool]", receive: Receive, seconds: float) -> bool:
    """Wait up to `seconds`; return whether a message came before the vehicle left."""
    left = asyncio.ensure_future(receive())  # ends when the vehicle closes the connection
    left.add_done_callback(lambda _: _end(released, False))
    late = released.get_loop().call_later(seconds, _end, released, False)
    try:
        return await released
    finally:
        late.cancel()
        left.cancel()


def _end(released: "asyncio.Future[bool]", came: bool) -> None:
    if not released.done():
        released.set_result(came)


def _vehicle_reply(request: Request, body: bytes) -> bytes:
    """Store a vehicle's reply with its objects."""
    objects = sum(map(len, messages.attached(body).values())) if len(body) > SMALL else 0
    if len(body) - objects > SMALL:
        raise AnnouncementTooLongError("The announcement is longer than that of any reply.")
    message = PushMessagesRequest.FromString(body)
    state = _vehicle_state(request, message)
    response = fleet_handlers.push_messages(message, state)
    _store_objects(state, message.messages_list[0].metadata.run_id, response, body)
    return bytes(response.SerializeToString())


def _run_requests(request: Request, body: bytes) -> bytes:
    """Store a run's requests with their objects, and note who they are for."""
    message = PushAppMessagesRequest.FromString(body)
    state, task = _task(request)
    response = runtime_handlers.push_messages(message, state, task)
    _store_objects(state, task.run_id, response, body)
    for stored, header in zip(response.message_ids, message.messages_list, strict=True):
        if stored:
            request.state.recipients.append(header.metadata.dst_node_id)
    return bytes(response.SerializeToString())


def _run_replies(request: Request, body: bytes) -> bytes:
    """Return replies for a run with their objects, as many as fit into a response."""
    message = PullAppMessagesRequest.FromString(body)
    state, task = _task(request)
    if not messages.wants_parts(body):
        response = runtime_handlers.pull_messages(message, state, task)
        return bytes(response.SerializeToString())
    replies = PullAppMessagesResponse()
    objects: dict[str, bytes] = {}
    size = 0
    ids = list(message.message_ids)
    for start in range(0, len(ids), SLICE):
        some = PullAppMessagesRequest(message_ids=ids[start : start + SLICE])
        response = runtime_handlers.pull_messages(some, state, task)
        replies.MergeFrom(response)
        for tree in response.message_object_trees:
            taken = _taken(state, task.run_id, tree)
            objects |= taken
            size += sum(map(len, taken.values()))
        if size > messages.SINGLE_REQUEST_BYTES:
            break
    return bytes(replies.SerializeToString()) + messages.encoded(objects)


def _vehicle_state(request: Request, message: Any) -> Any:
    """Return Flower's state after it has verified that a request is the vehicle's own."""
    request.state.protobuf_request = message
    authenticate_node(request)
    return request.app.state.linkstate_factory.state()


def _task(request: Request) -> tuple[Any, Any]:
    """Return Flower's state, and the run's task that the request is authenticated for."""
    state = request.app.state.runtime_state_factory.state()
    return state, authenticate_task(request, request.headers.get(TASK_TOKEN_HEADER), state)


def _store_objects(state: Any, run: int, response: Any, body: bytes) -> None:
    """Store the objects that came with messages; Flower's response asks for the rest."""
    objects = messages.attached(body)
    missing = [
        number
        for number in response.objects_to_push
        if number not in objects
        or not state.store_object(run, response.session_id, number, objects[number])
    ]
    del response.objects_to_push[:]
    response.objects_to_push.extend(missing)


def _taken(state: Any, run: int, tree: Any) -> dict[str, bytes]:
    """Return all objects of a message and drop them; none if some are not there yet."""
    objects = {}
    for part in iterate_object_tree(tree):
        content = state.get_object(run, part.object_id)
        if not content:
            return {}
        objects[part.object_id] = content
    state.object_store.delete(tree.object_id)
    return objects


def _count_heartbeat(request: Request, node: int) -> None:
    state = request.app.state.linkstate_factory.state()
    state.acknowledge_node_heartbeat(node, HEARTBEAT_DEFAULT_INTERVAL)


def _patience(request: Request) -> float:
    """Return the seconds for which a poll may be held; 0 if it does not say."""
    text = request.headers.get(WAIT_HEADER, "")
    return min(float(text), WAIT_SECONDS) if text.isdecimal() and text.isascii() else 0.0


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once more."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return first.pop() if first else await receive()

    return replayed
