"""Requests to vehicles and their replies, through any channel.

A request ends when all vehicles have replied, when its deadline is over, or when enough have
replied; one vehicle never makes it fail.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import Final, Protocol

from fedwatt.deploy.vehicle.messages import (
    ReplyForm,
    VehicleAway,
    VehicleFailed,
    VehicleRefused,
    opened,
)
from fedwatt.deploy.wire import Content, pack
from fedwatt.errors import DataError, FedwattError

LONGER: Final = 1.5
"""How many times the time that most vehicles took is left for all of them."""
FIRST_SPARED: Final = 1.0
LEAST_SPARED: Final = 0.1
"""Seconds that are left for the others in any case, before vehicles' times are known and after."""
SPREADS: Final = 4.0
"""Deviations beyond what the slowest took, as a retransmission waits for (RFC 6298)."""
KNOWN: Final = 3
REMEMBERED: Final = 5
"""Requests of a kind whose slowest replies tell how long vehicles take, and how many are kept."""


@dataclass(frozen=True)
class Received:
    """A channel's result for one request."""

    body: bytes | None
    trouble: str = ""
    """Why there is no body."""


class Channel(Protocol):
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
    """A vehicle's reply: its content, or what was wrong with it."""

    content: Content | None
    trouble: str = ""
    refused: str = ""
    """The setting of the acceptance file that refuses the plan."""

    def usable(self) -> Content:
        """Return the content; DataError if the reply cannot be used."""
        if self.content is None:
            raise DataError(self.trouble)
        return self.content


@dataclass
class Outcome:
    """Facts about a request besides its replies, by node."""

    seconds: dict[int, float] = field(default_factory=dict)
    """How long a reply took, or the word that there is none."""
    failed: dict[int, str] = field(default_factory=dict)
    """Why there is none, where that is known."""
    away: dict[int, float] = field(default_factory=dict)
    """Seconds for which a vehicle is outside its hours."""
    waited: float = 0.0


@dataclass(frozen=True)
class Requests:
    """Sends requests to vehicles by their node numbers."""

    channel: Channel
    poll_seconds: float = 0.1
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    slowest: dict[str, deque[float]] = field(default_factory=dict)
    """By kind, how long the last reply took in the last few requests; only times depend on it."""

    def ask(
        self,
        form: ReplyForm,
        requests: Mapping[int, Content],
        seconds: float,
        *,
        enough: int = 0,
        share: float = 1.0,
        outcome: Outcome | None = None,
        each: Callable[[int, Reply], Reply] = lambda node, reply: reply,
    ) -> dict[int, Reply]:
        """Return replies by node, of those that came within `seconds`.

        With `enough` the request ends when so many readable replies are there; when a `share` of
        the vehicles is done, the others have some time more (`closing`). Other facts are added to
        `outcome`. `each` reply is taken as it comes, and may be let go.
        """
        outcome, began = outcome or Outcome(), self.clock()
        waiting = self.send(form, requests, seconds)
        replies: dict[int, Reply] = {}
        sent = len(waiting)
        closes = inf
        last = 0.0

        def complete() -> bool:
            nonlocal closes, last
            came = self.receive(form, waiting, outcome)
            replies.update({node: each(node, reply) for node, reply in came.items()})
            took = self.clock() - began
            for node in (*came, *outcome.failed):
                outcome.seconds.setdefault(node, took)
            last = took if came else last
            if sent - len(waiting) >= share * sent:
                closes = min(closes, closing(took, self.slowest.get(form.kind, ())))
            readable = sum(reply.content is not None for reply in replies.values())
            return not waiting or took >= closes or 0 < enough <= readable

        self.wait(complete, seconds, lambda: began + closes)
        outcome.waited = min(self.clock() - began, seconds)
        if last:
            self.slowest.setdefault(form.kind, deque(maxlen=REMEMBERED)).append(last)
        return replies

    def wait(
        self, done: Callable[[], bool], seconds: float, closes: Callable[[], float] = lambda: inf
    ) -> bool:
        """Poll until `done`, for `seconds` at most; return whether it was.

        Polls take half of the time at most: one of ten thousand vehicles may be long.
        """
        deadline = self.clock() + seconds
        began = self.clock()
        while not done():
            now = self.clock()
            if now >= deadline:
                return False
            pause = min(max(self.poll_seconds, now - began), deadline - now)
            self.sleep(min(pause, max(closes() - now, 0.001)))
            began = self.clock()
        return True

    def send(
        self, form: ReplyForm, requests: Mapping[int, Content], seconds: float
    ) -> dict[str, int]:
        """Send requests; return the node of each message that was accepted, by its id."""
        # The same content object is packed once for all vehicles.
        packed: dict[int, bytes] = {}
        for content in requests.values():
            if id(content) not in packed:
                packed[id(content)] = pack(content)
        bodies = {node: packed[id(content)] for node, content in requests.items()}
        if not bodies:
            return {}
        return self.channel.send(bodies, seconds=max(seconds, 1.0), largest_reply=form.largest)

    def receive(
        self, form: ReplyForm, waiting: dict[str, int], outcome: Outcome | None = None
    ) -> dict[int, Reply]:
        """Return replies that have come; their messages are taken out of `waiting`."""
        replies, outcome = {}, outcome or Outcome()
        for number, received in self.channel.receive(list(waiting)).items():
            node = waiting.pop(number, None)
            if node is None:
                continue
            if received.body is None:
                outcome.failed[node] = received.trouble
                continue
            try:
                replies[node] = Reply(opened(form, received.body))
            except VehicleAway as error:
                outcome.away[node] = error.seconds
                outcome.failed[node] = str(error)
            except VehicleFailed as error:
                outcome.failed[node] = str(error)
            except VehicleRefused as error:
                replies[node] = Reply(None, str(error), error.reason)
            except FedwattError as error:
                replies[node] = Reply(None, str(error))
        return replies


def closing(took: float, slowest: Collection[float]) -> float:
    """Return the seconds after which a request closes whose share of replies took so long.

    That is when the slowest of the last requests, in the median, would be done, with a quarter
    more, or with four times the median deviation; half as long again where little is known.

    >>> closing(10.0, [])
    15.0
    >>> closing(0.5, [0.8, 9.0, 0.8])
    1.0
    >>> closing(1.0, [0.8, 0.8, 0.8])
    1.5
    """
    if len(slowest) < KNOWN:
        return max(LONGER * took, took + FIRST_SPARED)
    usual = median(slowest)
    spared = max(LEAST_SPARED, usual / 4, SPREADS * median(abs(one - usual) for one in slowest))
    return usual + spared if took <= usual else max(LONGER * took, took + spared)
