"""Connected vehicles as the round loop sees them (`federation.loop`).

Who takes part, how updates become the next model, what is recorded and which model is final are
the loop's own lines; a backend sends the requests and gathers the replies.

A round begins when so many vehicles are there that it can make a model, and a round that fewer than
the quorum answered is asked again, with the same draws, so that a fleet which goes away and comes
back trains the model of one that never left. Two kinds of rounds are not repeated:

- those of a private method: ε would have to count that a round stands or falls with one vehicle;
- a secure sum whose vectors were asked for: the difference of two sums of one round would be that
  of the vehicles that were in only one of them.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from secrets import randbits
from time import monotonic, sleep
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy import log
from fedwatt.deploy.server.members import Roster
from fedwatt.deploy.server.run_state import PAUSED, RUNNING, RunState
from fedwatt.deploy.server.sums import FinalErrors
from fedwatt.deploy.vehicle.messages import BROADCAST
from fedwatt.deploy.wire import Content, Value
from fedwatt.engine.pool import resolve_device
from fedwatt.errors import RunError, counted
from fedwatt.federation import Loop, State
from fedwatt.federation.federation import fitting_model
from fedwatt.federation.loop import ModelEvaluation
from fedwatt.federation.participation import Call, Members, Present, Terms, participant_count
from fedwatt.federation.records import Evaluation, Row
from fedwatt.federation.state import Table
from fedwatt.federation.work import Work, enough
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.metrics import ErrorSums, Stopwatch
from fedwatt.models import Model
from fedwatt.randomness import SystemNoise, generator
from fedwatt.runs.config import MethodChoice, RunConfig

PAUSE = 1.0
"""Seconds between two looks at who is there."""
MOST_FAILURES = 3
"""How often a round is asked again that all vehicles fail at, without waiting for its deadline."""


def vehicles_needed(quorum: int, replies: int, participation: float, sampling: str) -> int:
    """Return the fewest vehicles that must be there for a round of so many replies.

    >>> vehicles_needed(1, 2, 0.3, "fixed")  # ⌈0.3 · 4⌉ = 2
    4
    """
    needed = max(quorum, replies)
    while sampling == "fixed" and participant_count(needed, participation) < replies:
        needed += 1
    return needed


@dataclass(frozen=True)
class Unanswered:
    """The outcome of a round with too few replies: it is repeated."""

    answered: frozenset[str]
    """Who did."""


@dataclass
class Quorum:
    """Makes a run wait while too few vehicles are connected."""

    run: RunState
    needed: int
    """Vehicles that must be there."""
    longest_seconds: float
    """After which a pause ends the run."""
    failures: int = field(default=0, init=False)
    """How often in a row all vehicles failed at a round."""
    since: float | None = field(default=None, init=False)
    """When the first pause began since a round was answered."""
    why: str = field(default="", init=False)
    """Why the run is paused; empty if it is not."""

    def wait(self, done: int, connected: Callable[[], int]) -> None:
        """Return when enough vehicles are there; RunError if that takes too long."""
        present = connected()
        while present < self.needed:
            vehicles = counted(self.needed, "vehicle")
            self._paused(done, f"{present} of the {vehicles} that a round needs are there")
            sleep(PAUSE)
            present = connected()
        if self.why:
            log.info("continues after round %d: %s connected", done, counted(present, "vehicle"))
            self.why = ""
            self.run.note(RUNNING)

    def unanswered(self, done: int, called: int, answered: int, *, in_time: bool) -> None:
        """Record that a round must be repeated; raise RunError after `MOST_FAILURES` failed rounds.

        `in_time`: all vehicles reacted before the deadline, so missing updates are failures.
        """
        outcome = f"{answered} of {counted(called, 'vehicle')} answered round {done + 1}"
        self.failures = self.failures + 1 if in_time else 0
        if self.failures >= MOST_FAILURES:
            raise RunError(
                f"{outcome}, {self.failures} times in a row, and the others said that they cannot. "
                "Their own logs say why. Put it right and continue with --resume."
            )
        self._paused(done, f"{outcome}; it is asked again")
        sleep(PAUSE)

    def answered(self) -> None:
        """Note that a round has been answered."""
        self.failures = 0
        self.since = None

    def _paused(self, done: int, why: str) -> None:
        now = monotonic()
        self.since = now if self.since is None else self.since
        if now - self.since > self.longest_seconds:
            raise RunError(
                f"The run has waited {self.longest_seconds:g} s (deploy.pause_seconds) after round "
                f"{done}: {why}. Continue it with --resume when vehicles are back."
            )
        if why != self.why:
            self.why = why
            self.run.note(PAUSED, f"after round {done}: {why}")
            log.warning("paused after round %d: %s", done, why)


@dataclass(frozen=True)
class Progress:
    """State of a deployed method beside its models, by vehicle; a vehicle left out never did it."""

    counted: Mapping[str, int] = field(default_factory=dict)
    """The last round in which a vehicle's update counted."""
    validation: Mapping[str, ErrorSums] = field(default_factory=dict)
    """A vehicle's last validation errors."""
    evaluators: frozenset[str] = frozenset()
    """Vehicles whose errors were in a secure aggregation."""
    round: int = 0
    """Of the model that is evaluated next."""
    mean_windows: float = 0.0
    """Mean n_k of the evaluators; 0: unknown, or known of each vehicle."""

    def packed(self) -> Rows:
        """Return the state as JSON in a tensor of bytes.

        >>> Progress.unpacked(Progress({"b": 3}).packed()).counted
        {'b': 3}
        """
        table = asdict(self) | {"evaluators": sorted(self.evaluators)}
        return {"progress": torch.tensor(list(json.dumps(table).encode()), dtype=torch.uint8)}

    @classmethod
    def unpacked(cls, events: Rows) -> "Progress":
        """Return what `packed` stored."""
        if "progress" not in events:
            raise RunError(
                "The checkpoint does not tell which updates counted: it was written by another "
                "version of fedwatt. Start anew with another --out."
            )
        table = json.loads(bytes(events["progress"].tolist()))
        sums = {name: ErrorSums(**errors) for name, errors in table["validation"].items()}
        evaluators = frozenset(table["evaluators"])
        return cls(**table | dict(validation=sums, evaluators=evaluators))


@dataclass(frozen=True, eq=False)
class DeployedBackend(ABC):
    """Connected vehicles that train one method; they keep their own state."""

    errors_by: ClassVar[type[FinalErrors]] = FinalErrors
    evaluators: ClassVar[int] = 0
    """Vehicles that evaluate a round's model where `training.evaluate_vehicles` is 0; 0: all."""

    roster: Roster
    run: RunState
    config: RunConfig
    method: Method
    terms: Terms
    model: Model
    common: Mapping[str, Value]
    """Plan and method, which every request names."""
    errors: FinalErrors
    quorum: Quorum
    secret: int = field(default_factory=lambda: randbits(128))
    """Seed by which a private method's vehicles are drawn: ε counts on nobody knowing whom."""

    @classmethod
    def of(
        cls,
        roster: Roster,
        config: RunConfig,
        choice: MethodChoice,
        run: RunState,
    ) -> Self:
        """Return the backend of a method."""
        common: dict[str, Value] = {"plan": run.plan, "method": choice.label}
        fleet = roster.fleet()
        terms = Terms(choice.training(config.training), config.availability, config.seeds)
        model = fitting_model(config.model.on(fleet), fleet)
        errors = cls.errors_by(roster, run, config, common)
        needed = cls.vehicles_needed(config, choice.method)
        quorum = Quorum(run, needed, config.deploy.pause_seconds)
        return cls(roster, run, config, choice.method, terms, model, common, errors, quorum)

    @classmethod
    def vehicles_needed(cls, config: RunConfig, method: Method) -> int:
        """Return the vehicles that must be there for a round to make a model."""
        smallest = config.secure.smallest_sum if config.secure.enabled else 1
        replies = max(smallest, method.replies_needed)
        training = config.training
        quorum = config.deploy.quorum
        return vehicles_needed(quorum, replies, training.participation, training.sampling)

    @property
    def device(self) -> torch.device:
        """Return the device on which models are made."""
        return resolve_device(self.config.device)

    def loop(self) -> Loop:
        """Return the loop over the rounds of these vehicles."""
        self.begin(0)
        return Loop(lambda _: self, self.terms, self.model, self.device)

    def begin(self, round: int) -> None:
        """Let the events that follow belong to this round."""
        self.roster.events.begin(str(self.common["method"]), round)

    @property
    def calling_terms(self) -> Terms:
        """Return the terms by which vehicles are called."""
        return self.terms

    @property
    def private(self) -> bool:
        """Tell whether the method adds noise for privacy."""
        return self.method.server.private

    def members(self) -> Members:
        """Return the vehicles that have enrolled so far."""
        fleet = self.roster.fleet()
        return Members(fleet, self.terms.training.evaluate_vehicles or self.evaluators)

    def evaluation_request(self, weights: Tensor, progress: Progress) -> Content:
        """Return the request to evaluate the model [1, D]."""
        values = {"kind": "evaluate", **self.common, "round": progress.round}
        return Content(values, {"weights": weights[0].cpu().numpy()})

    def check(self, method: Method) -> None:
        """Refuse a method that cannot work in rounds of these vehicles."""
        self.terms.check(method, len(self.members().population))

    def initial_states(self, method: Method, weights: Tensor) -> tuple[dict[str, Table], Rows]:
        """Return no states of vehicles, which keep their own, and empty progress."""
        return {}, Progress().packed()

    def present(self, state: State | None) -> Present:
        """Return the connected vehicles; wait until they are enough for a round."""

        def connected() -> int:
            self.roster.refresh()
            return int(self.roster.available().sum())

        self.quorum.wait(0 if state is None else state.round, connected)
        members = self.members()
        available = torch.from_numpy(self.roster.available())[None]
        return Present(members, available, available)

    def server_draws(self, run: int, round: int, work: Work) -> np.random.Generator | SystemNoise:
        """Return the run's generator; for a private method the operating system's noise.

        A private model is counted on disk before anybody sees it: a server that is killed then
        makes another one of the same round, which costs privacy once more.
        """
        if not self.private:
            return generator(self.terms.seeds[run], "server", round)
        self.run.count_release(str(self.common["method"]))
        return SystemNoise()

    def vehicle_rows(self, weights: Tensor) -> list[Row]:
        """Return test errors of the model [1, D], of the vehicles that reply."""
        return self.errors.of_model(weights)

    def work(self, method: Method, state: State, present: Present, watch: Stopwatch) -> Work | None:
        """Ask the participants to train; None if the round is to be asked again."""
        self.begin(state.round + 1)
        secret = self.secret if self.private else None
        calls = self.calling_terms.calls(
            state.round, present.members, present.available, state.at_work, calling_seed=secret
        )
        # Under secure aggregation only vehicles know how many steps they take.
        hidden = self.roster.hidden
        name = present.members.name
        enough_replies = sum(hidden or call.steps > 0 for call in calls)
        calls += self._reserves(state.round, present, calls)
        called = {name(call.vehicle): call for call in calls if hidden or call.steps}
        began = monotonic()
        work = self.replies(state, present, called, enough_replies)
        if isinstance(work, Unanswered):
            self.repeat(state.round, began, called, work.answered)
            return None
        work = self.concluded(work)
        counts = zip(work.calls, work.counted, strict=True)
        counted = {name(call.vehicle) for call, counts_in in counts if counts_in}
        progress = Progress.unpacked(state.events)
        progress = replace(
            progress,
            counted={**progress.counted, **dict.fromkeys(counted, state.round)},
            round=state.round + 1,
        )
        return replace(work, called=calls, events=progress.packed())

    def repeat(
        self, round: int, began: float, called: Collection[str], answered: Collection[str]
    ) -> None:
        """Pause before a round is asked again that too few have answered."""
        seconds = monotonic() - began
        in_time = seconds < self.config.deploy.round_seconds
        self.quorum.unanswered(round, len(called), len(answered), in_time=in_time)

    def concluded(self, work: Work) -> Work:
        """Return the work of an answered round; nothing of it counts where too few replied."""
        self.quorum.answered()
        return enough(work, self.method.replies_needed)

    def _reserves(self, round: int, present: Present, calls: Sequence[Call]) -> list[Call]:
        """Return vehicles called beyond the participants, so that a round need not wait for all.

        Bonawitz et al., MLSys 2019, section 2.2: ⌈share · |S_t|⌉ more are called, and the round
        closes when as many as are needed have replied. Such a run is not that of a simulation.
        """
        reserve = present.idle(0, [call.vehicle for call in calls])
        count = min(ceil(self.config.deploy.over_selection * len(calls)), len(reserve))
        draws = generator(self.terms.seeds[0], "over-selection", round)
        chosen = sorted(draws.choice(reserve, count, replace=False).tolist())
        return [Call(0, vehicle, self.steps(present.members, vehicle)) for vehicle in chosen]

    def steps(self, members: Members, vehicle: int) -> int:
        """Return H_k of a vehicle whose windows are known."""
        speed = self.terms.speed(0, members.name(vehicle))
        return self.terms.steps(members.windows(vehicle), speed)

    @abstractmethod
    def replies(
        self, state: State, present: Present, called: Mapping[str, Call], enough_replies: int
    ) -> Work | Unanswered:
        """Return the updates of the vehicles called; so many replies end the round."""

    def training_requests(self, state: State, present: Present) -> Callable[[str], Content]:
        """Return the request to each vehicle, by its name, in the round that follows `state`."""
        counted = Progress.unpacked(state.events).counted
        values: dict[str, Value] = {
            "kind": "train",
            **self.common,
            "round": state.round,
            "population": len(present.members.population),
            "population_windows": float(present.members.population_windows),
        }
        sent = {BROADCAST + name: array for name, array in self.broadcast(state).items()}
        arrays = {"weights": state.weights[0].cpu().numpy(), **sent}
        made: dict[int, Content] = {}

        def request(name: str) -> Content:
            last = counted.get(name, -1)
            if last not in made:
                made[last] = Content({**values, "counted": last}, arrays)
            return made[last]

        return request

    def broadcast(self, state: State) -> dict[str, NDArray[Any]]:
        """Return the arrays that the server rule sends with the model of `state`."""
        dtype = state.weights.dtype
        return {
            key: (v.to(dtype) if v.is_floating_point() else v)[0].cpu().numpy()
            for key, v in self.method.server.broadcast(state.server).items()
        }

    @abstractmethod
    def evaluate(self, weights: Tensor, events: Rows, present: Present) -> ModelEvaluation:
        """Return error sums of the model [1, D], of the vehicles that reply."""

    def evaluate_mean(self, weights: Tensor, events: Rows, present: Present) -> ModelEvaluation:
        """Return error sums of the mean [1, D] of two rounds' models.

        It is evaluated as the model of the round after the last. Where nobody replies there are
        no errors: those that stand in for absent vehicles are of another model.
        """
        progress = Progress.unpacked(events)
        after = replace(progress, round=progress.round + 1)
        evaluation = self.evaluate(weights, after.packed(), present)
        (errors,) = evaluation.evaluations
        if isinstance(errors, Evaluation) and not any(sums.windows for sums in errors.test):
            return replace(evaluation, evaluations=[None])
        return evaluation

    def evaluate_personalised(
        self, method: Method, state: State, runs: Sequence[int]
    ) -> list[Evaluation | None]:
        """Return no errors of personalised models: vehicles evaluate one model per round."""
        return [None for _ in runs]
