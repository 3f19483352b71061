"""Flower's Grid without its waits: a reply is taken when all of its parts have come.

A vehicle announces a reply, then uploads its parts. `HttpGrid.pull_messages` waits for the parts of
one reply after the other, for minutes each, and raises what a malformed one makes it raise; one
vehicle could so hold up a round beyond its deadline, or end the run. Here nothing is waited for:
what has been announced is remembered, what parts there are are fetched, and a reply that cannot be
read, or is larger than what was asked for, is an error message, which is the vehicle's own trouble.
"""

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from flwr.app import Message
from flwr.serverapp import Grid

from fedwatt.deploy.transport import flower
from fedwatt.deploy.transport.door import Expected
from fedwatt.errors import DataError

UNREADABLE: Final = 1000
"""Code of the error that stands for a reply which came and cannot be read; Flower's are below."""
FORGET_SECONDS: Final = 3600.0
"""After which an announced reply that nobody asks for any more is forgotten."""
AT_ONCE: Final = 8
"""Parts that are fetched at the same time."""
AT_ONCE_QUESTIONS: Final = 250
"""Questions in a request: the first vehicles are at work while the last are asked."""


@dataclass
class Announced:
    """A reply on its way."""

    number: str
    reply_to: str
    sender: int
    """The node that announced it, as Flower knows it from its key."""
    missing: list[str]
    since: float
    parts: dict[str, bytes] = field(default_factory=dict)
    came_whole: bool = False
    """With its announcement: the server has dropped it already."""
    trouble: str = ""
    code: int = UNREADABLE


class PromptGrid:
    """What an `Exchange` needs of a Grid; takes at once the replies that are complete."""

    def __init__(self, grid: "flower.HttpGrid") -> None:
        self.grid = grid
        self.announced: dict[str, Announced] = {}
        """Replies on their way, keyed by the number of the message that each answers."""
        self.workers = ThreadPoolExecutor(AT_ONCE)
        self.expected = Expected.of_run(grid.run.run_id)

    def expect(self, largest: int) -> None:
        """Let the request filter know how large the replies to the next requests may be."""
        self.expected.at_least(largest + flower.ENVELOPE)

    def pull_messages(self, message_ids: Iterable[str], largest: int) -> list[Message]:
        """Replies that are complete, and errors for those that cannot be read or are too large."""
        asked = list(message_ids)
        fresh = [number for number in asked if number not in self.announced]
        if fresh:
            self._look_for(fresh)
        waiting = [self.announced[number] for number in asked if number in self.announced]
        wanted = [(reply, part) for reply in waiting for part in reply.missing]
        list(self.workers.map(lambda both: self._fetch(*both), wanted))
        found = []
        for reply in waiting:
            reply.missing = [part for part in reply.missing if part not in reply.parts]
            if reply.trouble or not reply.missing:
                found.append(self._read(reply, largest))
                del self.announced[reply.reply_to]
        return found

    def _look_for(self, numbers: list[str]) -> None:
        """Note which replies have been announced."""
        now = time.monotonic()
        replies, parts = flower.announced_replies(self.grid, numbers)
        old = [n for n, reply in self.announced.items() if now - reply.since > FORGET_SECONDS]
        for number in old:
            del self.announced[number]
        for about, tree in replies:
            reply_to = about.reply_to_message_id
            reply = Announced(about.message_id, reply_to, about.src_node_id, [], now)
            try:
                own = flower.part_numbers(tree)
                if len(own) > flower.MOST_PARTS:
                    reply.trouble = f"it has {len(own)} parts"
                elif own <= parts.keys():
                    reply.parts, reply.came_whole = {number: parts[number] for number in own}, True
                else:
                    reply.missing = sorted(own)
            except RecursionError:
                reply.trouble = "its parts are nested too deeply"
            self.announced[reply_to] = reply

    def _fetch(self, reply: Announced, part: str) -> None:
        """One part of a reply, if it is there by now."""
        try:
            content = flower.pull_part(self.grid, part)
        except ConnectionError as error:
            # The vehicle was cut off in mid-upload: its reply is lost, as one that never came.
            reply.trouble, reply.code = str(error), flower.REPLY_LOST
            return
        if content is not None:
            reply.parts[part] = content

    def _read(self, reply: Announced, largest: int) -> Message:
        """A reply from its parts, or an error in its place."""
        if not reply.trouble:
            if not reply.came_whole:
                flower.confirm_received(self.grid, reply.number)
            # What Flower raises on malformed parts has no end, and one vehicle must not end a run.
            try:
                flower.refuse_oversized(reply.parts, largest)
                message = flower.inflated(reply.number, reply.parts)
                about = message.metadata
                if (about.reply_to_message_id, about.src_node_id) != (reply.reply_to, reply.sender):
                    raise ValueError("it is not the reply that was announced")
                return message
            except Exception as error:
                kind = "" if isinstance(error, DataError) else f"{type(error).__name__}: "
                reply.trouble = f"{kind}{str(error)[:200]}"
        return flower.error_reply(self.grid, reply.reply_to, reply.code, reply.trouble)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages, some hundreds in a request; their numbers."""
        every = list(messages)
        batches = (
            every[n : n + AT_ONCE_QUESTIONS] for n in range(0, len(every), AT_ONCE_QUESTIONS)
        )
        return [number for batch in batches for number in flower.push_questions(self.grid, batch)]

    def get_nodes(self) -> Iterable[Any]:
        """Nodes that Flower's grid knows, with their names."""
        return self.grid.get_nodes()


def prompt(grid: Grid) -> Grid | PromptGrid:
    """The grid of a run without its waits; one that has none as it is."""
    return PromptGrid(grid) if flower.is_http_grid(grid) else grid  # type: ignore[arg-type]
