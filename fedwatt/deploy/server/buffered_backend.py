"""FedBuff on a real fleet: every `asynchronous.buffer` updates make the next model.

The rule is that of a simulation (`federation.buffered`): Mc vehicles train at any time, each that
is done is replaced by another that starts on the newest model, and updates are weakened by the age
of the model that they trained. Updates on their way are in this process alone: a resumed run asks
anew, from its last model on. Everything else is in the run's state, as in rounds.

Decided beyond the simulation: a request is given up after `deploy.round_seconds`; a vehicle that
refused, failed or was late is asked again from the next model on; a model is evaluated by the
vehicles that do not train when it is made, and the last errors of the others stand in for theirs,
except after the last one, when all are asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import monotonic

from fedwatt.deploy.server.backend import Progress
from fedwatt.deploy.server.plain_backend import PlainBackend
from fedwatt.deploy.server.requests import LATE, BackgroundRequests, Reply
from fedwatt.federation import State
from fedwatt.federation.buffered import (
    concurrency,
    refuse_impossible,
    refuse_unbuffered,
    starting,
    weakened,
)
from fedwatt.federation.participation import Call, Present
from fedwatt.federation.work import Work
from fedwatt.methods import Method
from fedwatt.metrics import Stopwatch
from fedwatt.runs.config import RunConfig


@dataclass(frozen=True)
class Update:
    """A request to train, on its way or answered."""

    version: int
    """Of the model."""
    sent: float
    reply: Reply | None = None

    def too_old(self, newest: int, limit: int) -> bool:
        """Tell whether too many models were made since; a `limit` of 0 is none."""
        return 0 < limit < newest - self.version

    def fills(self, newest: int, limit: int) -> bool:
        """Tell whether it takes a place of the buffer."""
        readable = self.reply is not None and self.reply.content is not None
        return readable and not self.too_old(newest, limit)


@dataclass(frozen=True, eq=False)
class BufferedBackend(PlainBackend):
    """Connected vehicles whose updates are taken in as they come."""

    training: dict[str, Update] = field(default_factory=dict)
    """By vehicle, of those that train now."""
    early: dict[str, Update] = field(default_factory=dict)
    """Updates that came with the last of a full buffer, for the next one."""

    @cached_property
    def sent(self) -> BackgroundRequests:
        """Return the requests on their way."""
        return BackgroundRequests(self.roster.requests, self.training_form)

    def check(self, method: Method) -> None:
        """Refuse what cannot work with updates of older models, or with so few vehicles."""
        settings = self.config.asynchronous
        population = len(self.members().population)
        refuse_impossible(settings, self.config.availability, population)
        refuse_unbuffered(method, settings)

    @classmethod
    def vehicles_needed(cls, config: RunConfig, method: Method) -> int:
        """Return the vehicles that must be there: those of a full buffer come one by one."""
        return max(config.deploy.quorum, method.replies_needed)

    def work(self, method: Method, state: State, present: Present, watch: Stopwatch) -> Work | None:
        """Wait until the buffer is full; None, with a pause, if nobody at all has answered."""
        self.begin(state.round + 1)
        members = present.members
        places = {members.name(int(k)): int(k) for k in members.population}
        began = monotonic()
        arrived = self._until_full(state, present, places)
        settings = self.config.asynchronous
        calls = {name: Call(0, places[name], self.steps(members, places[name])) for name in arrived}
        contents = {
            name: self.usable(update.version, name, calls[name], update.reply)
            for name, update in arrived.items()
            if update.reply is not None and not update.too_old(state.round, settings.max_staleness)
        }
        if not contents:
            self.repeat(state.round, began, arrived, ())
            return None
        stacked = self.stacked(state.round, state.weights, members, calls, contents)
        ages = [state.round - arrived[name].version for name in contents]
        work = weakened(self.concluded(stacked), ages, settings, members)
        counts = zip(contents, work.counted, strict=True)
        counted = {name: arrived[name].version for name, counts_in in counts if counts_in}
        progress = Progress.unpacked(state.events)
        counted = {**progress.counted, **counted}
        progress = replace(progress, counted=counted, round=state.round + 1)
        if state.round + 1 == self.terms.training.rounds:
            self.training.clear()  # nobody waits for these, and all evaluate the last model
        called = list(calls.values())
        return replace(work, called=called, places=settings.buffer, events=progress.packed())

    def _until_full(
        self, state: State, present: Present, places: Mapping[str, int]
    ) -> dict[str, Update]:
        """Return the updates that arrive until the buffer is full or no vehicle trains."""
        settings = self.config.asynchronous
        arrived: dict[str, Update] = {}
        draws = 0

        def full() -> bool:
            limit = settings.max_staleness
            fill = sum(update.fills(state.round, limit) for update in arrived.values())
            return fill >= settings.buffer

        while not full():
            while self.early and not full():
                name = next(iter(self.early))
                arrived[name] = self.early.pop(name)
            if full():
                break
            busy = [places[name] for name in {*self.training, *arrived} if name in places]
            missing = concurrency(settings, self.terms, len(places)) - len(self.training)
            idle = present.idle(0, busy)
            chosen = starting(self.terms.seeds[0], state.round, draws, idle, missing)
            self._send(state, present, [present.members.name(k) for k in chosen])
            draws += 1
            if not self.training:
                break
            self.early.update({n: update for n, update in self._wait().items() if n in places})
        return arrived

    def _send(self, state: State, present: Present, names: list[str]) -> None:
        """Ask vehicles to train the newest model."""
        request = self.training_requests(state, present)
        members = self.roster.members
        nodes = {members[name].node: name for name in names if self.roster.is_ready(name)}
        requests = {node: request(name) for node, name in nodes.items()}
        self.sent.send(requests, self.config.deploy.round_seconds)
        update = Update(state.round, monotonic())
        accepted = self.sent.waiting.values()
        self.training.update({nodes[node]: update for node in accepted if node in nodes})

    def _wait(self) -> dict[str, Update]:
        """Wait until a request is over: answered, failed, or not answered in time."""
        requests = self.roster.requests
        seconds = self.config.deploy.round_seconds
        names = {self.roster.members[name].node: name for name in self.training}
        outcomes: dict[str, Reply] = {}

        def over() -> bool:
            replies = self.sent.receive()
            now = monotonic()
            ages = {name: now - update.sent for name, update in self.training.items()}
            for node, reply in replies.items():
                if (name := names.get(node)) is not None:
                    outcomes[name] = replace(reply, seconds=ages[name])
            late = Reply(LATE, None, f"it did not reply within {seconds:g} s", seconds)
            for name, age in ages.items():
                if age >= seconds:
                    outcomes.setdefault(name, late)
            return bool(outcomes)

        requests.wait(over, seconds)
        replies = self.roster.note("train", outcomes)
        return {
            name: replace(self.training.pop(name), reply=replies.get(name)) for name in outcomes
        }

    def asked_to_evaluate(self, names: list[str]) -> list[str]:
        """Return the vehicles that do not train now and so can evaluate at once."""
        return [name for name in names if name not in self.training]
