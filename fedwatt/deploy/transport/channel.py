"""The server's channel to connected vehicles, on Flower's Grid.

`PublicChannel` uses the Grid's public methods. They send and fetch each part of a message in its
own request, and wait for the parts of one reply after the other. `FastChannel` sends single-request
messages. In both, a reply that cannot be
read is its vehicle's trouble alone.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto import message_pb2
from flwr.proto.runtime_pb2 import (
    PullAppMessagesRequest,
    PullAppMessagesResponse,
    PushAppMessagesRequest,
)
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError

from fedwatt.deploy.server.requests import Received
from fedwatt.deploy.transport import fast_path_is_on, messages
from fedwatt.errors import DataError

TROUBLES = {
    int(ErrorCode.MESSAGE_UNAVAILABLE): "its reply was lost on the way",
    int(ErrorCode.NODE_UNAVAILABLE): "its connection ended before it replied",
    int(ErrorCode.CLIENT_APP_RAISED_EXCEPTION): "it could not reply; its own log says why",
}


class PublicChannel:
    """Carries messages through the Grid's public methods."""

    batch: ClassVar[int] = 25
    """Requests that are announced at a time: vehicles poll for parts that are not there yet."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.limits: dict[str, tuple[int, int]] = {}
        """Node and most bytes of its reply, by message id."""

    def nodes(self) -> dict[int, str]:
        """Return connected nodes, with the names that their keys were registered under."""
        return {node.node_id: node.name or "" for node in self.grid.get_nodes()}

    def send(
        self, requests: Mapping[int, bytes], *, seconds: float, largest_reply: int
    ) -> dict[str, int]:
        """Queue one message per node; return the nodes of accepted messages by message id."""
        contents = {id(body): messages.content(body) for body in requests.values()}
        accepted: dict[str, int] = {}
        everyone = list(requests)
        for start in range(0, len(everyone), self.batch):
            nodes = everyone[start : start + self.batch]
            pushed = [
                Message(contents[id(requests[node])], node, messages.TYPE, ttl=max(seconds, 1.0))
                for node in nodes
            ]
            numbers = zip(self._push(pushed), nodes, strict=False)
            accepted |= {number: node for number, node in numbers if number}
        self.limits |= {number: (node, largest_reply) for number, node in accepted.items()}
        return accepted

    def receive(self, ids: Collection[str]) -> dict[str, Received]:
        """Return the replies that are complete by now."""
        expected = [number for number in ids if number in self.limits]
        replies = self._pull(expected) if expected else {}
        for number in replies:
            self.limits.pop(number, None)
        return replies

    def _push(self, pushed: list[Message]) -> Iterable[str]:
        return self.grid.push_messages(pushed)

    def _pull(self, ids: list[str]) -> dict[str, Received]:
        try:
            pulled = list(self.grid.pull_messages(ids))
        except Exception:  # one vehicle's reply cannot be read: find out whose
            if len(ids) == 1:
                return {ids[0]: "its reply cannot be read"}
            return {n: reply for number in ids for n, reply in self._pull([number]).items()}
        numbers = {message.metadata.reply_to_message_id: message for message in pulled}
        return {n: self._reply(n, m) for n, m in numbers.items() if n in self.limits}

    def _reply(self, number: str, message: Message) -> Received:
        """Return what a reply holds, or what is wrong with it."""
        node, largest = self.limits[number]
        if message.has_error():
            code = message.error.code
            return TROUBLES.get(code, f"it could not reply (error {code})")
        if message.metadata.src_node_id != node:
            return "its reply came from another vehicle"
        try:
            return self._body(message, largest)
        except DataError as error:
            return f"its reply cannot be read: {error}"

    def _body(self, message: Message, largest: int) -> bytes:
        return messages.body_of(message, largest)


class FastChannel(PublicChannel):
    """Carries single-request messages, over the Grid's own connection."""

    batch = 250

    def __init__(self, grid: Any) -> None:
        super().__init__(grid)
        self.client = grid._runtime_client
        self.origin = {"node": grid.node, "run_id": grid.run.run_id}
        self.announced: dict[str, tuple[Message, Any]] = {}
        """Replies that are not here yet without content, and their object trees, by request."""
        self.parts: messages.Parts = {}
        """Objects that came with the last announcements."""

    def _push(self, pushed: list[Message]) -> Iterable[str]:
        request = PushAppMessagesRequest()
        objects: dict[str, bytes] = {}
        for message in pushed:
            tree, parts = messages.taken_apart(message)
            request.messages_list.append(message_to_proto(remove_content_from_message(message)))
            request.message_object_trees.append(tree)
            objects |= parts
        messages.attach(request, objects)
        answer = self.client.PushMessages(request)
        # A SuperLink with the fast path has everything by now.
        for number in answer.objects_to_push:
            part = message_pb2.PushObjectRequest(
                session_id=answer.session_id,
                object_id=number,
                object_content=objects[number],
                **self.origin,
            )
            self.client.PushObject(part)
        return list(answer.message_ids)

    def _pull(self, ids: list[str]) -> dict[str, Received]:
        request = PullAppMessagesRequest(message_ids=[n for n in ids if n not in self.announced])
        messages.want_parts(request)
        answer: PullAppMessagesResponse = self.client.PullMessages(request)
        self.parts = messages.attached(answer.SerializeToString())
        for header, tree in zip(answer.messages_list, answer.message_object_trees, strict=True):
            reply = message_from_proto(header)
            self.announced[reply.metadata.reply_to_message_id] = reply, tree
        replies = {}
        for number in self.announced.keys() & set(ids):
            # A vehicle may send its parts one by one, and some are not here yet.
            with suppress(ObjectPullError):
                replies[number] = self._reply(number, self.announced[number][0])
                del self.announced[number]
        return replies

    def _body(self, message: Message, largest: int) -> bytes:
        """Return the body of a reply that was announced; ObjectPullError if it is not complete."""
        _, tree = self.announced[message.metadata.reply_to_message_id]
        numbers = messages.numbers_in(tree)
        parts = self.parts
        if not numbers <= parts.keys():
            parts = messages.pulled(numbers, self.client.PullObject, **self.origin, seconds=0.0)
            confirm = message_pb2.ConfirmMessageReceivedRequest(
                message_object_id=message.metadata.message_id, **self.origin
            )
            self.client.ConfirmMessageReceived(confirm)
        return messages.body_in({number: parts[number] for number in numbers}, largest)


def channel(grid: Grid) -> PublicChannel:
    """Return the channel of a run: the fast one where it is on and the Grid is Flower's own."""
    if fast_path_is_on() and hasattr(grid, "_runtime_client"):
        return FastChannel(grid)
    return PublicChannel(grid)
