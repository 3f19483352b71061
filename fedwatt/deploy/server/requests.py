"""Requests to vehicles and their replies, through any channel.

A request ends when all vehicles have replied, when its deadline is over, or when enough have
replied; one vehicle never makes it fail.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic, sleep
from typing import Final, Protocol

from fedwatt.deploy.vehicle.messages import (
    NoResult,
    ReplyForm,
    opened,
)
from fedwatt.deploy.wire import Content, pack
from fedwatt.errors import DataError, FedwattError

ANSWERED: Final = "answered"
REFUSED: Final = "refused"
FAILED: Final = "failed"
LATE: Final = "late"
REJECTED: Final = "rejected"
SPARE: Final = "spare"
AWAY: Final = "away"


@dataclass(frozen=True)
class Received:
    """A channel's result for one request."""

    body: bytes | None
    trouble: str = ""
    """Why there is no body."""


class RequestChannel(Protocol):
    """Carries messages to connected vehicles."""

    def nodes(self) -> dict[int, str]:
        """Return connected nodes, with the names that their keys were registered under."""

    def send(
        self, requests: Mapping[int, bytes], *, seconds: float, largest_reply: int
    ) -> dict[str, int]:
        """Queue one message per node; return the nodes of accepted messages by message id."""

    def receive(self, ids: Collection[str]) -> dict[str, Received]:
        """Return the replies that are complete by now, without waiting."""


@dataclass(frozen=True)
class Reply:
    """The outcome of a request to one vehicle."""

    outcome: str
    content: Content | None = None
    reason: str = ""
    """Why there is no content."""
    seconds: float = 0.0
    """From the request to its outcome."""
    away_seconds: float = 0.0
    """Time until the vehicle's hours begin, of one that is outside them."""

    @property
    def came(self) -> bool:
        """Tell whether the vehicle replied at all."""
        return self.outcome in (ANSWERED, REFUSED, REJECTED)

    def usable(self) -> Content:
        """Return the content; DataError if the reply cannot be used."""
        if self.content is None:
            raise DataError(self.reason)
        return self.content


@dataclass(frozen=True)
class Requests:
    """Sends requests to vehicles by their node numbers."""

    channel: RequestChannel
    poll_seconds: float = 0.1

    def ask(
        self,
        form: ReplyForm,
        requests: Mapping[int, Content],
        seconds: float,
        *,
        enough: int = 0,
        each: Callable[[int, Reply], Reply] = lambda node, reply: reply,
    ) -> dict[int, Reply]:
        """Return the outcome of every request, by node, after `seconds` at most.

        With `enough` the request ends when so many readable replies are there. `each` is called
        with every reply as it comes, and may let its content go.
        """
        began = monotonic()
        waiting = self.send(form, requests, seconds)
        replies: dict[int, Reply] = {}
        closed = False

        def complete() -> bool:
            nonlocal closed
            for node, reply in self.receive(form, waiting).items():
                replies[node] = each(node, replace(reply, seconds=monotonic() - began))
            answered = sum(reply.outcome == ANSWERED for reply in replies.values())
            closed = 0 < enough <= answered
            return closed or not waiting

        self.wait(complete, seconds)
        waited = min(monotonic() - began, seconds)
        silent = Reply(LATE, None, f"it did not reply within {seconds:g} s", waited)
        if closed:
            silent = Reply(SPARE, seconds=waited)
        return dict.fromkeys(requests, silent) | replies

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Poll until `done`, for `seconds` at most; return whether it was.

        Polls take half of the time at most: one of ten thousand vehicles may be long.
        """
        began = monotonic()
        deadline = began + seconds
        while not done():
            now = monotonic()
            if now >= deadline:
                return False
            sleep(min(max(self.poll_seconds, now - began), deadline - now))
            began = monotonic()
        return True

    def send(
        self, form: ReplyForm, requests: Mapping[int, Content], seconds: float
    ) -> dict[str, int]:
        """Send requests; return the node of each message that was accepted, by its id."""
        # The same content object is packed once for all vehicles.
        contents = {id(content): content for content in requests.values()}
        packed = {number: pack(content) for number, content in contents.items()}
        bodies = {node: packed[id(content)] for node, content in requests.items()}
        if not bodies:
            return {}
        return self.channel.send(bodies, seconds=max(seconds, 1.0), largest_reply=form.largest)

    def receive(self, form: ReplyForm, waiting: dict[str, int]) -> dict[int, Reply]:
        """Return the outcomes that are there; their messages are taken out of `waiting`."""
        received = self.channel.receive(list(waiting))
        nodes = {number: waiting.pop(number, None) for number in received}
        return {
            node: read_reply(form, received[number])
            for number, node in nodes.items()
            if node is not None
        }


def read_reply(form: ReplyForm, received: Received) -> Reply:
    """Return the outcome that a channel's result stands for."""
    if received.body is None:
        return Reply(FAILED, None, received.trouble)
    try:
        return Reply(ANSWERED, opened(form, received.body))
    except NoResult as error:
        seconds = float(error.values.get("seconds", 0.0))
        return Reply(error.status, None, str(error), away_seconds=seconds)
    except FedwattError as error:
        return Reply(REJECTED, None, str(error)[:200])


@dataclass
class BackgroundRequests:
    """Requests of one form that no round waits for; each node is sent one at a time."""

    requests: Requests
    form: ReplyForm
    waiting: dict[str, int] = field(default_factory=dict)
    """Node by message id."""
    paused: dict[int, float] = field(default_factory=dict)
    """Nodes that are not sent another one before a time."""

    def ready(self, nodes: Iterable[int]) -> list[int]:
        """Return those of `nodes` that may be sent a request now."""
        now = monotonic()
        return [node for node in nodes if self.paused.get(node, now) <= now]

    def pause(self, nodes: Iterable[int], seconds: float) -> None:
        """Send these nodes nothing for so long."""
        self.paused |= dict.fromkeys(nodes, monotonic() + seconds)

    def send(self, requests: Mapping[int, Content], seconds: float) -> None:
        """Send requests, whose replies are for `receive`; one without a reply may be repeated."""
        self.waiting = {n: node for n, node in self.waiting.items() if node not in requests}
        self.waiting |= self.requests.send(self.form, requests, seconds)
        self.pause(requests, seconds)

    def receive(self) -> dict[int, Reply]:
        """Return the outcomes that are there by now."""
        replies = self.requests.receive(self.form, self.waiting) if self.waiting else {}
        for node in replies:
            self.paused.pop(node, None)
        return replies
