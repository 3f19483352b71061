"""A real fleet as the loop sees it: vehicles are asked where a simulation would train them.

Who takes part, how replies become the next model, what is recorded and which model is best are the
loop's own lines (`federation.loop`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from secrets import randbits
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy.known import Known
from fedwatt.deploy.messages import Content, Value
from fedwatt.deploy.questions import RoundQuestion
from fedwatt.deploy.quorum import Quorum, Unanswered, vehicles_needed
from fedwatt.deploy.rest import Rest
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.state import RunState
from fedwatt.deploy.vehicle_errors import VehicleErrors
from fedwatt.engine.call import Call
from fedwatt.engine.device import resolve_device
from fedwatt.federation import Loop, State
from fedwatt.federation.local_fleet import fitting_model
from fedwatt.federation.members import Members
from fedwatt.federation.memory import Table
from fedwatt.federation.port import Judgement, Present
from fedwatt.federation.records import Evaluation, Row
from fedwatt.federation.terms import Terms
from fedwatt.federation.work import Work, enough
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.metrics import Stopwatch
from fedwatt.models import Model
from fedwatt.noise import SystemNoise
from fedwatt.randomness import generator
from fedwatt.runs.config import MethodChoice, RunConfig
from fedwatt.runs.earlier import earlier_toml
from fedwatt.runs.level import LEVEL, level_label


@dataclass(frozen=True, eq=False)
class RoadFleet(ABC):
    """Answers for vehicles that are elsewhere; they keep their own memory.

    What is left open is how a round's replies are gathered: one by one, or as a sum in secret.
    """

    fewest: ClassVar[int] = 1
    """Replies without which there is no sum."""
    judged_by: ClassVar[type[VehicleErrors]] = VehicleErrors
    """How the vehicles are asked for their errors of a model."""
    judges: ClassVar[int] = 0
    """Vehicles that judge a round's model where `training.evaluate_vehicles` does not say; 0: all.
    """

    roster: Roster
    run: RunState
    config: RunConfig
    method: Method
    terms: Terms
    model: Model
    device: torch.device
    common: Mapping[str, Value]
    """What every question says: the run, its configuration and the method."""
    errors: VehicleErrors
    quorum: Quorum
    secret: int = field(default_factory=lambda: randbits(128))
    """Seed by which a private method's vehicles are drawn: ε counts on nobody knowing whom, and
    vehicles know the run's seed."""
    noise: Callable[[], np.random.Generator | SystemNoise] = SystemNoise
    """Where a private method's noise comes from."""

    @classmethod
    def of(
        cls,
        roster: Roster,
        config: RunConfig,
        choice: MethodChoice,
        run: RunState,
        level: NDArray[Any] | None = None,
    ) -> Self:
        """The vehicles of a roster that train a method in a run; `level` as in `VehicleErrors`."""
        common: dict[str, Value] = {
            "run": run.run,
            "label": choice.label,
            "config": earlier_toml(config),
        }
        if roster.provision is not None:
            common |= roster.provision.question_values
        fleet = roster.fleet(config.data)
        terms = Terms(choice.training(config.training), config.availability, config.seeds)
        model = fitting_model(config.model.on(fleet), fleet)
        errors = cls.judged_by(roster, run, config, common, level)
        device = resolve_device(config.device)
        quorum = Quorum(
            roster.exchange,
            run,
            cls.vehicles_needed(config, choice.method),
            config.deploy.pause_seconds,
        )
        return cls(roster, run, config, choice.method, terms, model, device, common, errors, quorum)

    @classmethod
    def vehicles_needed(cls, config: RunConfig, method: Method) -> int:
        """Vehicles that must be there for a round to make a model."""
        sum_of = config.secure.smallest_sum if config.secure.enabled else 1
        replies = max(cls.fewest, sum_of, config.deploy.minimum_replies, method.replies_needed)
        training = config.training
        return vehicles_needed(
            config.deploy.quorum, replies, training.participation, training.sampling
        )

    def loop(self) -> Loop:
        """The loop over the rounds of these vehicles."""
        self._begin(0)
        return Loop(self, self.terms, self.model, self.device)

    def _begin(self, round: int) -> None:
        """Let the events that follow be of this round."""
        label = str(self.common["label"])
        level = self.run.path.parent.name == LEVEL
        self.roster.events.begin(level_label(label) if level else label, round)

    @property
    def calling_terms(self) -> Terms:
        """The terms by which vehicles are called."""
        return self.terms

    @property
    def private(self) -> bool:
        """Whether the method adds noise for privacy."""
        return self.method.server.private

    def members(self) -> Members:
        """The vehicles that have enrolled so far."""
        fleet = self.roster.fleet(self.config.data)
        return Members(fleet, self.terms.training.evaluate_vehicles or self.judges)

    def judging_question(self, weights: Tensor, known: Known) -> Content:
        """What vehicles are asked to judge the model [1, D]."""
        values = {**self.common, **known.made_values, "round": known.round}
        return Content(values, {"weights": weights[0].cpu().numpy()})

    def check(self, method: Method) -> None:
        """Refuse a method that cannot work in rounds of these vehicles."""
        self.terms.check(method, len(self.members().population))

    def remembered(self, method: Method, weights: Tensor) -> tuple[dict[str, Table], Rows]:
        """Vehicles remember for themselves; nothing is known of them yet."""
        return {}, Known().packed()

    def present(self, state: State | None) -> Present:
        """Who is connected now, newcomers included; waits until they are enough for a round."""

        def there() -> int:
            self.roster.refresh()
            return int(self.roster.available(self.members().fleet).sum())

        self.quorum.wait(0 if state is None else state.round, there)
        members = self.members()
        available = torch.from_numpy(self.roster.available(members.fleet))[None]
        return Present(members, available, available)

    def server_draws(self, run: int, round: int, work: Work) -> np.random.Generator | SystemNoise:
        """The run's; for a private method the operating system's, which nobody can repeat.

        A private model is counted on disk before anybody sees it: a server that is killed then
        makes another one of the same round, which costs privacy once more.
        """
        if not self.private:
            return generator(self.terms.seeds[run], "server", round)
        self.run.count_release(str(self.common["label"]))
        return self.noise()

    def vehicle_rows(self, weights: Tensor) -> list[Row]:
        """Test errors of the model [1, D] by vehicle and stratum, of those that answer."""
        return self.errors.of_model(weights)

    def work(self, method: Method, state: State, present: Present, watch: Stopwatch) -> Work | None:
        """Ask the participants to train; the roster is told who did not do what it was asked to.

        None if the round is to be asked again, because too few answered.
        """
        self._begin(state.round + 1)
        secret = self.secret if self.private else None
        calls = self.calling_terms.calls(
            state.round, present.members, present.available, state.at_work, calling_seed=secret
        )
        # Where masks hide their windows, vehicles know by themselves how many steps they take.
        hidden = self.roster.hidden
        name, wanted = present.members.name, sum(hidden or call.steps > 0 for call in calls)
        calls += self._reserves(state.round, present, calls)
        called = {name(call.vehicle): call for call in calls if hidden or call.steps}
        began = self.roster.exchange.clock()
        work = self.replies(state, present, called, wanted)
        if isinstance(work, Unanswered):
            in_time = self.roster.exchange.clock() - began < self.config.deploy.round_seconds
            for silent in called.keys() - work.answered:
                self.roster.unanswered(silent)
            answered = len(work.answered)
            self.quorum.unanswered(state.round, len(called), answered, in_time=in_time)
            return None
        self.quorum.answered()
        work = enough(work, max(self.config.deploy.minimum_replies, method.replies_needed))
        pairs = zip(work.calls, work.counted, strict=True)
        counted = {name(call.vehicle) for call, counts in pairs if counts}
        for silent in called.keys() - counted:
            self.roster.unanswered(silent)
        known = Known.unpacked(state.events)
        made = None if method.server.acts_alone else known.made
        if counted and work.events:
            made = Known.unpacked(work.events).made
        known = replace(
            known,
            counted={**known.counted, **dict.fromkeys(counted, state.round)},
            round=state.round + 1,
            rests=self.rests("train", known, called, state.round),
            made=made,
        )
        return replace(work, asked=calls, events=known.packed())

    def _reserves(self, round: int, present: Present, calls: Sequence[Call]) -> list[Call]:
        """Vehicles called beyond what a round needs, so that it need not wait for the slowest.

        Bonawitz et al., MLSys 2019, section 2.2: ⌈share · |S_t|⌉ more are called, fewer if there
        are no more, and the round closes when as many as are wanted have replied. Who is late
        trained in vain. Which replies count then depends on who is quick, so such a run is not that
        of a simulation.
        """
        others = present.others(0, [call.vehicle for call in calls])
        count = min(ceil(self.config.deploy.over_selection * len(calls)), len(others))
        draws = generator(self.terms.seeds[0], "over-selection", round)
        chosen = sorted(int(one) for one in draws.choice(others, count, replace=False))
        return [Call(0, vehicle, self.steps(present.members, vehicle)) for vehicle in chosen]

    def steps(self, members: Members, vehicle: int) -> int:
        """H_k of a vehicle that has told how many windows it has."""
        speed = self.terms.speed(0, members.name(vehicle))
        return self.terms.steps(members.windows(vehicle), speed)

    def rests(
        self, kind: str, known: Known, asked: Collection[str], round: int
    ) -> Mapping[str, Mapping[str, Rest]]:
        """Who has missed how many rounds after this one; nobody is counted here (`rest`)."""
        return known.rests

    @abstractmethod
    def replies(
        self, state: State, present: Present, called: Mapping[str, Call], wanted: int
    ) -> Work | Unanswered:
        """What comes back from the vehicles called; what cannot be used is not counted.

        The round is over when `wanted` of them have replied.
        """

    def training_questions(self, state: State, present: Present) -> Callable[[str], Content]:
        """What each vehicle is asked, by its name, in the round that follows `state`."""
        known = Known.unpacked(state.events)
        question = RoundQuestion(
            state.round,
            -1,
            len(present.members.population),
            present.members.population_windows,
            self.config.deploy.diagnostics,
            state.weights[0].cpu().numpy(),
            self.sent(state),
        )
        alike, counted = question.content({**self.common, **known.made_values}), known.counted
        return lambda name: Content(
            {**alike.values, "counted": counted.get(name, -1)}, alike.arrays
        )

    def sent(self, state: State) -> dict[str, NDArray[Any]]:
        """What the server rule sends with the model of `state`."""
        dtype = state.weights.dtype
        return {
            key: (v.to(dtype) if v.is_floating_point() else v)[0].cpu().numpy()
            for key, v in self.method.server.broadcast(state.server).items()
        }

    @abstractmethod
    def judge(self, weights: Tensor, events: Rows, present: Present) -> Judgement:
        """Error sums of the model [1, D], of those that answer."""

    def judge_mean(self, weights: Tensor, events: Rows, present: Present) -> Judgement:
        """Error sums of the mean [1, D] of two rounds' models.

        Vehicles judge the one model that each round announces. The mean is announced as that of the
        round after the last, which trains nothing. Where nobody answers it is not judged: errors
        that stand in for those who are away are of another model.
        """
        known = Known.unpacked(events)
        announced = replace(known, round=known.round + 1)
        found = self.judge(weights, announced.packed(), present)
        (errors,) = found.evaluations
        if isinstance(errors, Evaluation) and not any(own.windows for own in errors.test):
            return replace(found, evaluations=[None])
        return found

    def judge_own(
        self, method: Method, state: State, runs: Sequence[int]
    ) -> list[Evaluation | None]:
        """None of them: under masks a vehicle answers once about each model."""
        return [None for _ in runs]
