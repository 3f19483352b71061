"""The server's channel to connected vehicles, on Flower's Grid.

On the public path each message is one packed bytes value of a `ConfigRecord`. Where the fast path
is on (`PromptGrid`), the same messages take one request each and replies are never waited for.
"""

from collections.abc import Collection, Mapping
from typing import Final

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedwatt.deploy.server.requests import Received
from fedwatt.deploy.transport import flower
from fedwatt.deploy.transport.prompt_grid import UNREADABLE, PromptGrid

RECORD: Final = "fedwatt"
BODY: Final = "body"
TYPE: Final = "query"
TROUBLES: Final = {
    flower.REPLY_LOST: "its reply was lost on the way",
    flower.NODE_GONE: "its connection ended before it replied",
}


def message_content(body: bytes) -> RecordDict:
    """Return a message body as Flower's records."""
    return RecordDict({RECORD: ConfigRecord({BODY: body})})


def message_body(records: RecordDict) -> bytes:
    """Return the body of a message; ValueError if it has none."""
    body = records.config_records.get(RECORD, ConfigRecord()).get(BODY)
    if not isinstance(body, bytes):
        raise ValueError("it is no message of fedwatt")
    return body


class FlowerChannel:
    """Carries messages through Flower."""

    def __init__(self, grid: Grid | PromptGrid) -> None:
        self.grid = grid
        self.limits: dict[str, int] = {}
        """Most bytes of a reply, by message id."""

    def nodes(self) -> dict[int, str]:
        """Return connected nodes, with the names that their keys were registered under."""
        return {node.node_id: node.name or "" for node in self.grid.get_nodes()}

    def send(
        self, requests: Mapping[int, bytes], *, seconds: float, largest_reply: int
    ) -> dict[str, int]:
        """Queue one message per node; return the nodes of accepted messages by message id."""
        if isinstance(self.grid, PromptGrid):
            self.grid.expect(largest_reply)
        contents: dict[int, RecordDict] = {}
        for body in requests.values():
            if id(body) not in contents:
                contents[id(body)] = message_content(body)
        messages = [
            Message(contents[id(body)], node, TYPE, ttl=seconds) for node, body in requests.items()
        ]
        ids = list(self.grid.push_messages(messages))
        accepted = {n: node for n, node in zip(ids, requests, strict=False) if n}
        self.limits |= dict.fromkeys(accepted, largest_reply)
        return accepted

    def receive(self, ids: Collection[str]) -> dict[str, Received]:
        """Return the replies that are complete by now, without waiting."""
        found = {}
        for message in self._pulled(list(ids)):
            number = message.metadata.reply_to_message_id
            largest = self.limits.pop(number, 0)
            if message.has_error():
                code, reason = message.error.code, message.error.reason
                trouble = TROUBLES.get(code, f"it could not reply (error {code})")
                if code == UNREADABLE:
                    trouble = f"its reply cannot be read: {reason}"
                found[number] = Received(None, trouble)
                continue
            try:
                body = message_body(message.content)
                if len(body) > largest:
                    raise ValueError("it is longer than what was asked for")
                found[number] = Received(body)
            except Exception as error:
                # Whatever a vehicle made Flower's records raise is that vehicle's trouble.
                found[number] = Received(None, f"its reply cannot be read: {error}")
        return found

    def _pulled(self, ids: list[str]) -> list[Message]:
        if isinstance(self.grid, PromptGrid):
            largest = max((self.limits.get(number, 0) for number in ids), default=0)
            return self.grid.pull_messages(ids, largest)
        return list(self.grid.pull_messages(ids))

    def close(self) -> None:
        """End what this channel expects of vehicles."""
        if isinstance(self.grid, PromptGrid):
            self.grid.expected.over()


def channel(grid: Grid) -> FlowerChannel:
    """Return the channel of a run: without Flower's waits where its grid is known."""
    return FlowerChannel(PromptGrid(grid) if flower.is_http_grid(grid) else grid)  # type: ignore[arg-type]
