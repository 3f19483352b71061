"""FedBuff on a real fleet: every `asynchronous.buffer` replies make the next model.

The rule is that of a simulation (`federation.buffered`): Mc vehicles are at work at any time, who
is done is replaced by another that starts on the newest model, and replies are weakened by the age
of the model that they trained. Here they come when they come. What is on its way is in this process
alone and is lost with it: a run that is resumed asks anew, from its last model on. All else that it
needs is in its state, as in rounds.

Decided beyond the simulation: a question is given up after `deploy.round_seconds`; who refused,
failed or was late is asked again from the next model on; a model is evaluated by the vehicles that
are not at work when it is made, and the last errors of the others stand in for theirs (`evaluate`),
except after the last one, when all are asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fedwatt.deploy.server.plain_backend import PlainBackend
from fedwatt.deploy.server.progress import Progress
from fedwatt.deploy.server.requests import Outcome, Reply
from fedwatt.engine.call import Call
from fedwatt.federation import State
from fedwatt.federation.backend import Present
from fedwatt.federation.buffered import (
    concurrency,
    refuse_impossible,
    refuse_unbuffered,
    starting,
    weakened,
)
from fedwatt.federation.work import Work, enough
from fedwatt.methods import Method
from fedwatt.metrics import Stopwatch
from fedwatt.runs.config import RunConfig


@dataclass(frozen=True)
class Asked:
    """A question on its way, or one that is over, answered or not."""

    number: str  # of its message
    node: int
    version: int  # of the model
    sent: float  # when
    answer: Reply | None = None

    def too_old(self, newest: int, limit: int) -> bool:
        """Return whether too many models were made since; a `limit` of 0 is none."""
        return 0 < limit < newest - self.version

    def fills(self, newest: int, limit: int) -> bool:
        """Return whether it takes a place of the buffer."""
        readable = self.answer is not None and self.answer.content is not None
        return readable and not self.too_old(newest, limit)


@dataclass(frozen=True, eq=False)
class BufferedBackend(PlainBackend):
    """Connected vehicles whose updates are taken in as they come."""

    trips: dict[str, Asked] = field(default_factory=dict)
    """By vehicle, of those at work."""
    early: dict[str, Asked] = field(default_factory=dict)
    """Replies that came with the last of a full buffer, for the next one."""

    def check(self, method: Method) -> None:
        """Refuse what cannot work with replies to older models, or with so few vehicles."""
        own = self.config.asynchronous
        population = len(self.members().population)
        refuse_impossible(own, self.config.availability, population)
        refuse_unbuffered(method, own)

    @classmethod
    def vehicles_needed(cls, config: RunConfig, method: Method) -> int:
        """Vehicles that must be there: those of a full buffer come one after the other."""
        return max(config.deploy.quorum, config.deploy.minimum_replies, method.replies_needed)

    def work(self, method: Method, state: State, present: Present, watch: Stopwatch) -> Work | None:
        """Wait until the buffer is full; None, with a pause, if nobody at all has answered."""
        self._begin(state.round + 1)
        members = present.members
        places = {members.name(int(k)): int(k) for k in members.population}
        began = self.roster.requests.clock()
        arrived = self._until_full(state, present, places)
        settings = self.config.asynchronous
        calls = {name: Call(0, places[name], self.steps(members, places[name])) for name in arrived}
        found = {
            name: self._reply(own.version, name, calls[name], own.answer)
            for name, own in arrived.items()
            if own.answer is not None and not own.too_old(state.round, settings.max_staleness)
        }
        for silent in arrived.keys() - found.keys():
            self.roster.unanswered(silent)
        if not found:
            in_time = self.roster.requests.clock() - began < self.config.deploy.round_seconds
            self.quorum.unanswered(state.round, len(arrived), 0, in_time=in_time)
            return None
        self.quorum.answered()
        work = self._stacked(state.round, state.weights, members, calls, found)
        work = enough(work, max(self.config.deploy.minimum_replies, method.replies_needed))
        ages = [state.round - arrived[name].version for name in found]
        work = weakened(work, ages, settings, members)
        counts = dict(zip(found, work.counted, strict=True))
        counted = {name: arrived[name].version for name in found if counts[name]}
        progress = Progress.unpacked(state.events)
        counted = {**progress.counted, **counted}
        progress = replace(progress, counted=counted, round=state.round + 1)
        if state.round + 1 == self.terms.training.rounds:
            self.trips.clear()  # nobody waits for these: all evaluate the last model
        asked = list(calls.values())
        return replace(work, asked=asked, places=settings.buffer, events=progress.packed())

    def _until_full(
        self, state: State, present: Present, places: Mapping[str, int]
    ) -> dict[str, Asked]:
        """Return the updates that arrive until the buffer is full or no vehicle is at work."""
        own = self.config.asynchronous
        arrived: dict[str, Asked] = {}
        draws = 0

        def full() -> bool:
            fill = sum(one.fills(state.round, own.max_staleness) for one in arrived.values())
            return fill >= own.buffer

        while not full():
            while self.early and not full():
                name = next(iter(self.early))
                arrived[name] = self.early.pop(name)
            if full():
                break
            busy = {*self.trips, *arrived}
            known = [places[name] for name in busy if name in places]
            missing = concurrency(own, self.terms, len(places)) - len(self.trips)
            others = present.others(0, known)
            chosen = starting(self.terms.seeds[0], state.round, draws, others, missing)
            self._send(state, present, [present.members.name(k) for k in chosen])
            draws += 1
            if not self.trips:
                break
            self.early.update({n: a for n, a in self._wait().items() if n in places})
        return arrived

    def _send(self, state: State, present: Present, names: list[str]) -> None:
        """Ask vehicles to train the newest model."""
        roster = self.roster
        seconds = self.config.deploy.round_seconds
        request = self.training_requests(state, present)
        nodes = {roster.members[name].node: name for name in names if roster.there(name)}
        requests = {node: request(name) for node, name in nodes.items()}
        sent = roster.requests.send(self.training_form, requests, seconds)
        now = roster.requests.clock()
        for number, node in sent.items():
            self.trips[nodes[node]] = Asked(number, node, state.round, now)

    def _wait(self) -> dict[str, Asked]:
        """Look until a question is over: answered, failed, or not answered in time."""
        requests = self.roster.requests
        seconds = self.config.deploy.round_seconds
        form = self.training_form
        names = {trip.node: name for name, trip in self.trips.items()}
        waiting = {trip.number: trip.node for trip in self.trips.values()}
        answers = dict[int, Reply]()
        outcome = Outcome()

        def over() -> list[str]:
            now = requests.clock()
            left = set(waiting.values())
            late = [n for n, trip in self.trips.items() if now - trip.sent >= seconds]
            return [name for node, name in names.items() if node not in left or name in late]

        def done() -> bool:
            answers.update(requests.receive(form, waiting, outcome))
            return bool(over())

        requests.wait(done, seconds)
        trips = {name: self.trips.pop(name) for name in over()}
        now = requests.clock()
        outcome.seconds |= {trip.node: now - trip.sent for trip in trips.values()}
        outcome.waited = seconds
        nodes = {name: trip.node for name, trip in trips.items()}
        found = self.roster.take_note("train", nodes, answers, outcome)
        return {name: replace(trip, answer=found.get(name)) for name, trip in trips.items()}

    def asked_to_evaluate(self, names: list[str], progress: Progress) -> list[str]:
        """Return the vehicles that are not at work: others would reply when that is done."""
        asked = super().asked_to_evaluate(names, progress)
        return [name for name in asked if name not in self.trips]
