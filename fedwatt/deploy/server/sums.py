"""Sums over connected vehicles: the deployed executors of `fedwatt.metrics.sums`.

`SecureSums` runs one secure aggregation per sum: keys, shares, the vehicles' contributions under
masks, agreement on who survived, and the shares that unmask the total. Vehicles contribute once,
so a total is kept in the run folder. `PlaceSums` repeats failed sums for learning maps and routes.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from fedwatt.deploy.server.members import Roster
from fedwatt.deploy.server.requests import Reply
from fedwatt.deploy.server.run_state import RunState, SumTotal
from fedwatt.deploy.vehicle.messages import SECURE, ReplyForm, vector_form
from fedwatt.deploy.vehicle.secure import Purpose
from fedwatt.deploy.wire import Content
from fedwatt.errors import DataError, FedwattError, RunError
from fedwatt.metrics.sums import CLIPPED, SumRequest, Total, VectorLayout, Words
from fedwatt.privacy.secure import server
from fedwatt.privacy.secure.messages import (
    Advert,
    Agreed,
    Masked,
    Revealed,
    Shares,
    from_plain,
    to_plain,
)
from fedwatt.privacy.secure_settings import SecureTerms

log = logging.getLogger("fedwatt.deploy")

Message = TypeVar("Message")
ATTEMPTS: Final = 3
"""Sums for one request about places, before learning is given up."""


class NoSum(RunError):
    """A sum that too few vehicles saw through."""

    def __init__(
        self,
        reason: str,
        lost: frozenset[str] = frozenset(),
        rejected: frozenset[str] = frozenset(),
        *,
        sent: bool = False,
    ) -> None:
        super().__init__(reason)
        self.lost = lost
        """Vehicles whose reply to the last step is missing or could not be used."""
        self.rejected = rejected
        self.sent = sent
        """Whether contributions were asked for: then it is not asked for again."""


@dataclass(frozen=True)
class SecureSums:
    """Sums by secure aggregation."""

    roster: Roster
    run: RunState
    smallest: int = 0
    """Raises the plan's smallest sum."""
    enough: int = 0
    """Contributions after which no other is waited for; 0: all are."""

    def total(
        self,
        name: str,
        names: Iterable[str],
        layout: VectorLayout,
        request: Callable[[str], Content],
        seconds: float,
    ) -> SumTotal:
        """Return the sums over those of `names` that see it through; NoSum if they are too few.

        `request` asks a vehicle for its contribution, which may take it `seconds`; `name` is for
        the log.
        """
        called = sorted(names)
        settings = self.roster.config.secure
        smallest = max(settings.smallest_sum, self.smallest)
        if len(called) < smallest:
            raise NoSum(f"a sum needs {smallest} vehicles, and {len(called)} are called.")
        purpose = Purpose.of(request(called[0])).text
        before = self.run.kept_total(purpose)
        if before is not None and set(before.survivors) <= set(called):
            return before
        terms = settings.terms(
            run=self.run.plan,
            number=self.run.next_exchange(time.time_ns() // 1000),
            called=len(called),
            length=layout.length,
            purpose=purpose,
        )
        terms = replace(terms, threshold=max(terms.threshold, smallest), bits=layout.bits)
        exchange = _Exchange(self, terms, request, seconds)
        try:
            words, survivors = exchange.total(called)
        except FedwattError as error:
            if isinstance(error, server.NoTotal):
                exchange.reject(error.rejected)
            lost = frozenset(called) - exchange.answered
            rejected = frozenset(exchange.rejected)
            raise NoSum(str(error), lost, rejected, sent=exchange.sent) from error
        finally:
            for vehicle, reason in exchange.rejected.items():
                log.warning("%s: a message of %s rejected: %s", name, vehicle, reason)
                self.roster.events.uncounted(vehicle, reason)
        total = SumTotal(layout.decode(words), survivors, exchange.rejected)
        self.run.keep_total(purpose, total)
        return total


@dataclass
class _Exchange:
    """One secure aggregation on its way."""

    sums: SecureSums
    terms: SecureTerms
    request: Callable[[str], Content]
    seconds: float
    rejected: dict[str, str] = field(default_factory=dict)
    answered: frozenset[str] = frozenset()
    """Vehicles whose reply to the last step could be used."""
    sent: bool = False

    def total(self, names: list[str]) -> tuple[Words, tuple[str, ...]]:
        """Return the sum of the survivors' words, and who they are."""
        adverts = self._ask("sum-keys", Advert, dict.fromkeys(names, self.terms))
        keyed, left_out = server.make_roster(self.terms, adverts)
        self.reject(left_out)
        rosters = {name: keyed.roster(name) for name in keyed.graph.names}
        routed, inboxes, left_out = server.route(keyed, self._ask("sum-shares", Shares, rosters))
        self.reject(left_out)
        requests = {}
        for name, inbox in inboxes.items():
            plain = self.request(name)
            requests[name] = Content({**plain.values, **to_plain(inbox, SECURE)}, plain.arrays)
        self.sent = True
        summed, survivors, left_out = self._added(routed, requests).collected()
        self.reject(left_out)
        agreed = self._ask("sum-agree", Agreed, dict.fromkeys(summed.survivors, survivors))
        passed, left_out = server.pass_on(summed, agreed)
        self.reject(left_out)
        total, left_out = server.unmask(summed, self._ask("sum-reveal", Revealed, passed))
        self.reject(left_out)
        return total, summed.survivors

    def _added(self, routed: server.Routed, requests: Mapping[str, Content]) -> server.Adding:
        """Return the sum of the contributions that come; none of them is kept."""
        adding = server.Adding(routed)

        def add(name: str, reply: Reply) -> Reply:
            try:
                adding.add(name, from_plain(Masked, reply.usable().values))
            except DataError as error:
                self.rejected[name] = str(error)
                return reply
            return replace(reply, content=Content())

        terms = self.terms
        form = vector_form(terms.length * terms.bits // 8)
        enough = self.sums.enough and max(self.sums.enough, terms.threshold)
        kind = str(next(iter(requests.values())).values["kind"])
        self.sums.roster.ask(form, requests, self.seconds, kind=kind, enough=enough, each=add)
        self.answered = frozenset(adding.arrived)
        return adding

    def _ask(
        self, kind: str, reply: type[Message], messages: Mapping[str, Any]
    ) -> dict[str, Message]:
        """Return the replies to one step, by vehicle."""
        common = {"kind": kind, "plan": self.sums.run.plan}
        packed = {
            id(message): Content({**common, **to_plain(message, SECURE)})
            for message in messages.values()
        }
        requests = {name: packed[id(message)] for name, message in messages.items()}
        good = {}
        seconds = self.sums.roster.config.secure.stage_seconds
        for name, answer in self.sums.roster.ask(ReplyForm(kind), requests, seconds).items():
            try:
                good[name] = from_plain(reply, answer.usable().values)
            except DataError as error:
                self.rejected[name] = str(error)
        self.answered = frozenset(good)
        return good

    def reject(self, left_out: Mapping[str, str]) -> None:
        """Note the vehicles whose messages could not be used."""
        self.rejected |= left_out
        self.answered -= left_out.keys()


@dataclass
class PlaceSums:
    """Sums over places: an executor of `metrics.sums` that repeats failed sums under new numbers.

    A sum that fails is repeated without the vehicles that failed where the others are enough, and
    with them where not.
    """

    roster: Roster
    run: RunState
    kind: str
    content: Callable[[Any], Content]
    """Returns the fields of a request."""
    number: int = 0
    """Of the next sum; vehicles contribute to each number once."""

    @property
    def smallest(self) -> int:
        """Return the vehicles that a sum must be of."""
        return max(2, self.roster.config.elevation.minimum_vehicles)

    def __call__(self, request: SumRequest, present: frozenset[str]) -> Total:
        """Return the totals of a request and who is in them; RunError if all attempts fail."""
        log.info("%s: asking %d vehicles for %s", self.kind, len(present), request.described)
        lost: frozenset[str] = frozenset()
        rejected: frozenset[str] = frozenset()
        reason = ""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                connected = self._gathered(present)
                choices = (connected - lost, connected - rejected, connected)
                called = next(names for names in choices if len(names) >= self.smallest)
                total = self._sum(request, called)
            except NoSum as error:
                lost |= error.lost
                rejected |= error.rejected
                silent = ", ".join(sorted(error.lost - error.rejected))
                reason = f"{error} No reply came from {silent}." if silent else str(error)
                log.warning("%s: sum %d of at most %d: %s", self.kind, attempt, ATTEMPTS, reason)
                continue
            if clipped := total.sums[CLIPPED][0]:
                log.warning("%s: %d values were clipped", self.kind, clipped)
            return total.sums, frozenset(total.survivors)
        raise RunError(
            f"'{self.kind}' could not be learned: {ATTEMPTS} secure aggregations failed one after "
            f"the other. {reason} --resume tries again."
        )

    def _sum(self, request: SumRequest, called: frozenset[str]) -> SumTotal:
        content = self.content(request)
        values = {"kind": self.kind, "plan": self.run.plan, "number": self.number}
        self.number += 1
        content = Content({**values, **content.values}, content.arrays)
        # In words of 64 bits: of 32 sums would be too coarse.
        layout = VectorLayout(request.fields, vehicles=len(called))
        sums = SecureSums(self.roster, self.run, smallest=self.smallest)
        seconds = self.roster.config.deploy.round_seconds
        return sums.total(self.kind, called, layout, lambda name: content, seconds)

    def _gathered(self, names: frozenset[str]) -> frozenset[str]:
        """Return those of `names` that are connected; wait a while for enough of them."""
        connected: frozenset[str] = frozenset()

        def enough() -> bool:
            nonlocal connected
            self.roster.refresh()
            connected = frozenset(name for name in names if self.roster.is_ready(name))
            return len(connected) >= self.smallest

        if not self.roster.requests.wait(enough, self.roster.config.secure.stage_seconds):
            present = len(connected)
            raise NoSum(
                f"{present} of {len(names)} vehicles are there, {self.smallest} are needed."
            )
        return connected
