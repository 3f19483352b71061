"""Sums over connected vehicles: the deployed executors of `fedwatt.metrics.sums`.

`SecureSums` runs one secure aggregation per sum: keys, shares, the vehicles' contributions under
masks, agreement on who survived, and the shares that unmask the total. Vehicles contribute once,
so a total is kept in the run folder. `PlaceSums` repeats failed sums for learning maps and routes.
`FinalErrors` and `SummedErrors` ask for the test errors of final and personalised models.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, TypeVar

from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy import log
from fedwatt.deploy.server.members import Member, Roster
from fedwatt.deploy.server.requests import Reply
from fedwatt.deploy.server.run_state import RunState, SumTotal
from fedwatt.deploy.vehicle.messages import BROADCAST, SECURE, ReplyForm, vector_form
from fedwatt.deploy.vehicle.secure import purpose_of
from fedwatt.deploy.wire import Content, Value
from fedwatt.errors import DataError, FedwattError, RunError
from fedwatt.federation.evaluate import EVALUATION, FINAL, error_sums
from fedwatt.federation.records import Row, error_columns
from fedwatt.metrics import ErrorSums
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
from fedwatt.runs.config import RunConfig

Message = TypeVar("Message")
ATTEMPTS = 3
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
    """Sums over connected vehicles by secure aggregation."""

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
        purpose = purpose_of(request(called[0]))
        before = self.run.kept_total(purpose)
        if before is not None and set(before.survivors) <= set(called):
            return before
        terms = SecureTerms(
            run=self.run.plan,
            number=self.run.next_exchange(time.time_ns() // 1000),
            called=len(called),
            threshold=max(settings.survivors_needed(len(called)), smallest),
            length=layout.length,
            bits=layout.bits,
            purpose=purpose,
        )
        exchange = _Exchange(self, terms, request, seconds)
        try:
            words, survivors = exchange.total(called)
        except FedwattError as error:
            rejected = frozenset(exchange.rejected)
            lost = frozenset(called) - (exchange.answered - rejected)
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
    """Vehicles whose reply to the last step could be read."""
    sent: bool = False

    def total(self, names: list[str]) -> tuple[Words, tuple[str, ...]]:
        """Return the sum of the survivors' words, and who they are."""
        adverts = self._ask("sum-keys", Advert, dict.fromkeys(names, self.terms))
        keyed = server.make_roster(self.terms, adverts, self.rejected)
        rosters = {name: keyed.roster(name) for name in keyed.graph.names}
        shares = self._ask("sum-shares", Shares, rosters)
        routed, inboxes = server.route(keyed, shares, self.rejected)
        requests = {}
        for name, inbox in inboxes.items():
            plain = self.request(name)
            requests[name] = Content({**plain.values, **to_plain(inbox, SECURE)}, plain.arrays)
        self.sent = True
        summed, survivors = self._added(routed, requests).collected()
        agreed = self._ask("sum-agree", Agreed, dict.fromkeys(summed.survivors, survivors))
        passed = server.pass_on(summed, agreed, self.rejected)
        revealed = self._ask("sum-reveal", Revealed, passed)
        return server.unmask(summed, revealed, self.rejected), summed.survivors

    def _added(self, routed: server.Routed, requests: Mapping[str, Content]) -> server.Adding:
        """Return the sum of the contributions that come; none of them is kept."""
        adding = server.Adding(routed, self.rejected)

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
        log.info("%s: asking %d vehicles for a sum", self.kind, len(present))
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


GROUPS = {"all vehicles": False, "held-out vehicles": True}
"""Rows that stand for a fleet, and whether they are of vehicles that never train."""


@dataclass(frozen=True, eq=False)
class FinalErrors:
    """Test errors by vehicle; each model is asked about once."""

    roster: Roster
    run: RunState
    config: RunConfig
    common: Mapping[str, Value]
    rows: dict[str, list[Row]] = field(default_factory=dict)
    """Replies so far, by the digest of the request."""

    def of_model(self, weights: Tensor) -> list[Row]:
        """Return errors of the model [1, D]."""
        return self._rows("final", {"weights": weights[0].cpu().numpy()})

    def personalised(
        self, weights: Tensor, round: int, sent: Mapping[str, NDArray[Any]]
    ) -> list[Row]:
        """Return errors of the models that vehicles personalise from the model [1, D]."""
        arrays = {"weights": weights[0].cpu().numpy()}
        arrays |= {BROADCAST + name: array for name, array in sent.items()}
        return self._rows("personalise", arrays, {"round": round})

    def _rows(
        self,
        kind: str,
        arrays: Mapping[str, NDArray[Any]],
        values: Mapping[str, Value] | None = None,
    ) -> list[Row]:
        digests = (sha256(array.tobytes()).hexdigest() for array in arrays.values())
        key = " ".join((kind, *digests))
        if key not in self.rows:
            number = {"round": sum(name.startswith(kind) for name in self.rows)}
            request = Content({"kind": kind, **self.common, **number, **(values or {})}, arrays)
            self.rows[key] = self._ask_vehicles(kind, request)
        return self.rows[key]

    def _row(self, name: str, held_out: bool, errors: ErrorSums) -> Row:
        label = {"seed": self.config.seeds[0], "vehicle": name, "held_out": held_out}
        return {**label, "stratum": "all", **error_columns(errors)}

    def seconds(self, kind: str) -> float:
        """Return how long a reply may take."""
        deploy = self.config.deploy
        return deploy.round_seconds if kind == "personalise" else deploy.evaluation_seconds

    def _ask_vehicles(self, kind: str, request: Content) -> list[Row]:
        clients = {client.name: client for client in self.roster.fleet().clients}
        requests = dict.fromkeys(clients, request)
        replies = self.roster.ask(ReplyForm(kind), requests, self.seconds(kind))
        rows: list[Row] = []
        for name, client in clients.items():
            try:
                if name not in replies:
                    raise DataError("it did not reply")
                _, errors = enrolled_errors(self.roster.members[name], replies[name].usable())
            except DataError as error:
                log.warning("no errors of %s: %s", name, error)
                continue
            rows.append(self._row(name, client.held_out, errors))
        return rows


@dataclass(frozen=True, eq=False)
class SummedErrors(FinalErrors):
    """Errors of the fleet by secure aggregation, of which no single vehicle's are known.

    Vehicles that train and held-out vehicles are in separate sums.
    """

    def _ask_vehicles(self, kind: str, request: Content) -> list[Row]:
        clients = self.roster.fleet().clients
        rows: list[Row] = []
        for name, held_out in GROUPS.items():
            names = [client.name for client in clients if client.held_out == held_out]
            total = self.sum(kind, names, request)
            if total is None:
                continue
            try:
                (errors,) = error_sums(total.sums, 1)
            except DataError as error:
                log.warning("the errors of %s are rejected: %s", name, error)
                continue
            rows.append(self._row(name, held_out, errors))
        return rows

    def sum(self, kind: str, names: Sequence[str], request: Content) -> SumTotal | None:
        """Return the sum over the connected of `names`; None, with a log line, if there is none."""
        connected = [name for name in names if self.roster.is_ready(name)]
        if not connected:
            return None
        sums = SecureSums(self.roster, self.run)
        layout = VectorLayout(EVALUATION if kind == "evaluate" else FINAL, vehicles=len(connected))
        try:
            return sums.total(kind, connected, layout, lambda name: request, self.seconds(kind))
        except NoSum as error:
            log.warning("%s: %s", kind, error)
            return None


def enrolled_errors(member: Member, content: Content) -> tuple[ErrorSums, ErrorSums]:
    """Return a vehicle's validation and test errors; DataError unless of its enrolled windows.

    Replies about a final model have test errors only.
    """
    errors = []
    for split, enrolled in zip(("validation", "test"), member.windows[1:], strict=True):
        sums = ErrorSums()
        if split in content.arrays:
            sums = ErrorSums.from_array(content.arrays[split])
            if sums.windows != enrolled:
                raise DataError(f"they are of {sums.windows} windows, and it has {enrolled}")
        errors.append(sums)
    return errors[0], errors[1]
