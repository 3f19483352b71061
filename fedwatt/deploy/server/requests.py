"""Requests to vehicles and their replies, through any channel.

A request ends when all vehicles have replied, when its deadline is over, or when enough have
replied; one vehicle never makes it fail. Outcomes are events of the run, RUN/events.jsonl, one line
per event, only added to:

    {"at": …, "event": "enrolled", "vehicle": "car-001", "version": "0.1.0"}
    {"at": …, "event": "answered", "vehicle": "car-001", "method": "fedavg", "round": 3,
     "request": "train", "seconds": 0.82}
    {"at": …, "event": "late", …, "reason": "it did not reply within 600 s"}

docs/operating.md lists them all. Method and round are those of `progress.jsonl`; round 0 comes
before the first. Reasons are the server's words; nothing that a vehicle wrote into an error is
repeated. The four short steps of a secure aggregation leave a line only where they fail.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Protocol

from fedwatt.deploy.vehicle.messages import (
    SUM_STEPS,
    NoResult,
    ReplyForm,
    opened,
)
from fedwatt.deploy.wire import Content, pack
from fedwatt.errors import DataError, FedwattError
from fedwatt.files import append_rows

ANSWERED = "answered"
REFUSED = "refused"
FAILED = "failed"
LATE = "late"
REJECTED = "rejected"
SPARE = "spare"
AWAY = "away"
EVENTS = "events.jsonl"

UNCOUNTED = "not counted"
ENROLLED = "enrolled"
TURNED_AWAY = "turned away"

MOST_OPEN = 1000
"""Background requests on their way at a time: Flower goes through all of them for each vehicle's
message, and through all vehicles for each wave."""
SILENT_SECONDS = 30.0
"""After which a vehicle without a reply keeps no other one waiting."""

REPLIES = (ANSWERED, REFUSED, FAILED, LATE, REJECTED, SPARE)
"""Outcomes of a request: one of these for each vehicle that was asked."""
TROUBLES = frozenset((REFUSED, FAILED, LATE, REJECTED, UNCOUNTED, TURNED_AWAY))


Received = bytes | str
"""A channel's result for one request: the reply, or why there is none."""


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
    """Return the outcome of one node: its opened message, or why there is none."""
    if isinstance(received, str):
        return Reply(FAILED, None, received)
    try:
        return Reply(ANSWERED, opened(form, received))
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
    sent: dict[int, float] = field(default_factory=dict)
    """When nodes without a reply were sent theirs."""
    paused: dict[int, float] = field(default_factory=dict)
    """Nodes that are not sent another one before a time."""

    def ready(self, nodes: Iterable[int]) -> list[int]:
        """Return those of `nodes` that may be sent a request now, `MOST_OPEN` at most."""
        now = monotonic()
        ready = [node for node in nodes if self.paused.get(node, now) <= now]
        open_requests = sum(now - sent < SILENT_SECONDS for sent in self.sent.values())
        return ready[: max(0, MOST_OPEN - open_requests)]

    def pause(self, nodes: Iterable[int], seconds: float) -> None:
        """Send these nodes nothing for so long."""
        self.paused |= dict.fromkeys(nodes, monotonic() + seconds)

    def send(self, requests: Mapping[int, Content], seconds: float) -> None:
        """Send requests, whose replies are for `receive`; one without a reply may be repeated."""
        self.waiting = {n: node for n, node in self.waiting.items() if node not in requests}
        self.waiting |= self.requests.send(self.form, requests, seconds)
        self.sent |= dict.fromkeys(requests, monotonic())
        self.pause(requests, seconds)

    def receive(self) -> dict[int, Reply]:
        """Return the outcomes that are there by now."""
        replies = self.requests.receive(self.form, self.waiting) if self.waiting else {}
        for node in replies:
            self.sent.pop(node, None)
            self.paused.pop(node, None)
        return replies


@dataclass
class EventLog:
    """The events of a run, and the round that they belong to."""

    path: Path
    method: str = ""
    round: int = 0
    troubled: set[str] = field(default_factory=set)
    """Vehicles that have a line about a trouble in this round already."""

    def begin(self, method: str, round: int) -> None:
        """Let the events that follow belong to this round."""
        self.method = method
        self.round = round
        self.troubled.clear()

    def replied(self, kind: str, replies: Mapping[str, Reply]) -> None:
        """Write the outcome of a request, by vehicle."""
        self.write(
            {"event": reply.outcome, "vehicle": name, "method": self.method, "round": self.round}
            | {"request": kind, "seconds": round(reply.seconds, 3)}
            | ({"reason": reply.reason} if reply.reason else {})
            for name, reply in replies.items()
            if not (reply.outcome == ANSWERED and kind in SUM_STEPS)
        )

    def uncounted(self, vehicle: str, reason: str) -> None:
        """Write that a readable reply did not count; once per round and vehicle."""
        if vehicle not in self.troubled:
            line = {"event": UNCOUNTED, "vehicle": vehicle, "method": self.method}
            self.write([{**line, "round": self.round, "reason": reason[:200]}])

    def write(self, lines: Iterable[dict[str, Any]]) -> None:
        """Append lines to the log with the present time, the same for all."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        rows = [{"at": at, **line} for line in lines]
        self.troubled |= {row["vehicle"] for row in rows if row["event"] in TROUBLES}
        if rows:
            append_rows(self.path, rows)
