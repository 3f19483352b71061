"""Questions out, answers in: the server's side of a conversation with the vehicles.

Flower's own strategies wait without a deadline and look for replies every three seconds; this one
looks often, stops when all have answered or time is up, and never fails because of one vehicle. On
a real server the Grid is a `PromptGrid`, whose looks do not wait for what is still on its way.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import Final

from flwr.app import Message
from flwr.serverapp import Grid

from fedwatt.deploy.bounds import reply_bounds
from fedwatt.deploy.flower import NODE_GONE, REPLY_LOST, VEHICLE_FAILED, VEHICLE_REFUSED
from fedwatt.deploy.hours import VEHICLE_AWAY, told_seconds, until
from fedwatt.deploy.messages import MESSAGE_TYPES, Content, ReplyForm, all_records, opened
from fedwatt.deploy.policy import RULES
from fedwatt.deploy.prompt_grid import UNREADABLE, PromptGrid
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
"""Questions of a kind whose slowest answers tell how long vehicles take, and how many of the last
ones are remembered."""


@dataclass(frozen=True)
class Answer:
    """What came back from a vehicle: its content, or what was wrong with it."""

    content: Content | None
    trouble: str = ""
    refused: str = ""
    """The rule of its policy that a vehicle names in the place of an answer."""

    def usable(self) -> Content:
        """The content; DataError if there was an answer that cannot be used."""
        if self.content is None:
            raise DataError(self.trouble)
        return self.content


FAILURES = {
    VEHICLE_FAILED: "it could not answer; its own log says why",
    REPLY_LOST: "its reply was lost on the way",
    NODE_GONE: "its connection ended before it answered",
}
"""What an error reply means, by its code; what else it says is not repeated."""


@dataclass
class Heard:
    """What is heard of questions besides their answers, by node."""

    seconds: dict[int, float] = field(default_factory=dict)
    """How long an answer took, or the word that there is none."""
    failed: dict[int, str] = field(default_factory=dict)
    """Why there is none, where a vehicle said so."""
    away: dict[int, float] = field(default_factory=dict)
    """Seconds for which a vehicle is outside its hours, where it said so."""
    waited: float = 0.0
    """Seconds until nobody was waited for any more."""


@dataclass(frozen=True)
class Exchange:
    """A way to ask vehicles by their node numbers."""

    grid: Grid | PromptGrid
    poll_seconds: float = 0.1
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    slowest: dict[str, deque[float]] = field(default_factory=dict)
    """By kind of question, how long the last answer took, of the last few questions; only times
    depend on it, so it may be lost with this process."""

    def ask(
        self,
        form: ReplyForm,
        questions: Mapping[int, Content],
        seconds: float,
        *,
        enough: int = 0,
        share: float = 1.0,
        heard: Heard | None = None,
        each: Callable[[int, Answer], Answer] = lambda node, answer: answer,
    ) -> dict[int, Answer]:
        """Answers by node, of those that came within `seconds`.

        A vehicle that could not answer (Flower's error reply) counts as one that did not. With
        `enough` nobody is waited for any more when so many answers that can be read are there; when
        a `share` of the vehicles is done, the others have some time more (`closing`). What else
        becomes known of them is added to `heard`. `each` answer is taken as it comes, and may be
        let go.
        """
        heard, began = heard or Heard(), self.clock()
        waiting = self.send(form, questions, seconds)
        answers: dict[int, Answer] = {}
        sent, closes, last = len(waiting), inf, 0.0

        def complete() -> bool:
            nonlocal closes, last
            came = self.receive(form, waiting, heard)
            answers.update({node: each(node, answer) for node, answer in came.items()})
            took = self.clock() - began
            for node in (*came, *heard.failed):
                heard.seconds.setdefault(node, took)
            last = took if came else last
            if sent - len(waiting) >= share * sent:
                closes = min(closes, closing(took, self.slowest.get(form.kind, ())))
            readable = sum(answer.content is not None for answer in answers.values())
            return not waiting or took >= closes or 0 < enough <= readable

        self.wait(complete, seconds, lambda: began + closes)
        heard.waited = min(self.clock() - began, seconds)
        if last:
            self.slowest.setdefault(form.kind, deque(maxlen=REMEMBERED)).append(last)
        return answers

    def wait(
        self, done: Callable[[], bool], seconds: float, closes: Callable[[], float] = lambda: inf
    ) -> bool:
        """Look again and again until it is `done`, `seconds` at most; whether it was.

        Looks take half of the time at most: one at ten thousand vehicles may be long. One falls on
        the time at which it `closes`.
        """
        deadline, began = self.clock() + seconds, self.clock()
        while not done():
            now = self.clock()
            if now >= deadline:
                return False
            pause = min(max(self.poll_seconds, now - began), deadline - now)
            self.sleep(min(pause, max(closes() - now, 0.001)))
            began = self.clock()
        return True

    def send(
        self, form: ReplyForm, questions: Mapping[int, Content], seconds: float
    ) -> dict[str, int]:
        """Put questions on their way: node of each message that was accepted, by its number."""
        if isinstance(self.grid, PromptGrid):
            self.grid.expect(reply_bounds(form))
        nodes, records = list(questions), all_records(list(questions.values()))
        messages = [
            Message(one, node, MESSAGE_TYPES[form.kind], ttl=max(seconds, 1.0))
            for node, one in zip(nodes, records, strict=True)
        ]
        numbers = list(self.grid.push_messages(messages)) if messages else []
        return {number: node for number, node in zip(numbers, nodes, strict=False) if number}

    def receive(
        self, form: ReplyForm, waiting: dict[str, int], heard: Heard | None = None
    ) -> dict[int, Answer]:
        """Answers that have come; their messages are taken out of `waiting`.

        Of vehicles that could not answer, `heard` is told why.
        """
        answers, heard = {}, heard or Heard()
        for message in self._pulled(list(waiting), form):
            node = waiting.pop(message.metadata.reply_to_message_id, None)
            if node is None:
                continue
            if message.has_error():
                code, reason = message.error.code, message.error.reason
                if code == UNREADABLE:
                    answers[node] = Answer(None, f"it cannot be read: {reason}")
                elif code == VEHICLE_REFUSED and reason in RULES:
                    answers[node] = Answer(None, f"it refuses: {RULES[reason]}", reason)
                elif code == VEHICLE_AWAY and (seconds := told_seconds(reason)) is not None:
                    heard.away[node], heard.failed[node] = seconds, until(seconds)
                else:
                    heard.failed[node] = FAILURES.get(code, f"it could not answer (error {code})")
                continue
            # Flower fills the sender in from its session; another's name is not believed.
            if message.metadata.src_node_id != node:
                answers[node] = Answer(None, "it came from another vehicle")
                continue
            try:
                answers[node] = Answer(opened(form, message.content))
            except FedwattError as error:
                answers[node] = Answer(None, str(error))
            except Exception as error:
                # Whatever a vehicle made Flower's records raise is that vehicle's trouble.
                answers[node] = Answer(None, f"it cannot be read ({type(error).__name__})")
        return answers

    def _pulled(self, numbers: list[str], form: ReplyForm) -> Iterable[Message]:
        """Replies that have come; of a real server only those within their bounds."""
        if isinstance(self.grid, PromptGrid):
            return self.grid.pull_messages(numbers, reply_bounds(form))
        return self.grid.pull_messages(numbers)


def closing(took: float, slowest: Collection[float]) -> float:
    """Seconds after which a question closes whose share of answers took so long.

    That is when the slowest of the last questions, in the median, would be done, with a quarter
    more, or with four times the median deviation. Where little is known of them, or this question
    takes longer, it is half as long again.

    >>> closing(10.0, [])
    15.0
    >>> closing(0.5, [0.6, 0.7])
    1.5
    >>> closing(0.5, [0.8, 9.0, 0.8])
    1.0
    >>> closing(0.5, [0.75, 1.0, 1.25])
    2.0
    >>> closing(1.0, [0.8, 0.8, 0.8])
    1.5
    """
    if len(slowest) < KNOWN:
        return max(LONGER * took, took + FIRST_SPARED)
    usual = median(slowest)
    spared = max(LEAST_SPARED, usual / 4, SPREADS * median(abs(one - usual) for one in slowest))
    return usual + spared if took <= usual else max(LONGER * took, took + spared)
