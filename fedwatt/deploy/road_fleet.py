"""A real fleet as the loop sees it: vehicles are asked where a simulation would train them.

Who takes part, how replies become the next model, what is recorded and which model is best are the
loop's own lines (`federation.loop`).
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import randbits
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy.exchange import Answer
from fedwatt.deploy.known import Known
from fedwatt.deploy.limits_of_replies import scaled_down
from fedwatt.deploy.made import made_values
from fedwatt.deploy.messages import Content, Sizes, Value
from fedwatt.deploy.over_selection import reserves
from fedwatt.deploy.questions import AFTER, SENT, RoundQuestion, sizes_of
from fedwatt.deploy.quorum import Quorum, Unanswered, vehicles_needed
from fedwatt.deploy.rest import Rest
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.state import RunState
from fedwatt.deploy.vehicle_errors import VehicleErrors, possible_sums, tell_margin
from fedwatt.engine.call import Call
from fedwatt.engine.device import resolve_device
from fedwatt.errors import DataError
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
from fedwatt.metrics import ErrorSums, Stopwatch
from fedwatt.models import Model
from fedwatt.noise import SystemNoise
from fedwatt.randomness import generator
from fedwatt.runs.config import MethodChoice, RunConfig
from fedwatt.runs.earlier import earlier_toml
from fedwatt.runs.level import LEVEL, level_label

log = logging.getLogger("fedwatt.deploy")


@dataclass(frozen=True, eq=False)
class RoadFleet(ABC):
    """Answers for vehicles that are elsewhere; they keep their own memory.

    What is left open is how a round's replies are gathered: one by one, or as a sum in secret.
    """

    fewest: ClassVar[int] = 1
    """Replies without which there is no sum."""
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
        sizes = sizes_of(choice.method, model, terms.training.precision, config.deploy.update_type)
        errors = cls.errors_of(roster, run, config, common, sizes, level)
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

    @classmethod
    def errors_of(
        cls,
        roster: Roster,
        run: RunState,
        config: RunConfig,
        common: Mapping[str, Value],
        sizes: Sizes,
        level: NDArray[Any] | None,
    ) -> VehicleErrors:
        """How the vehicles are asked for their errors at the end."""
        return VehicleErrors(roster, config, common, sizes, level)

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
    def sizes(self) -> Sizes:
        """Lengths of what the method's messages hold."""
        return self.errors.sizes

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
        made = made_values(known.made)
        values: dict[str, Value] = {**self.common, **made, "round": known.round}
        return Content(values, {"weights": weights[0].cpu().numpy()})

    @abstractmethod
    def check(self, method: Method) -> None:
        """Refuse a method that cannot work with these vehicles."""

    def check_terms(self, method: Method) -> None:
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
        if share := self.config.deploy.over_selection:
            members, available = present.members, present.available
            calls += reserves(self.terms, share, state.round, members, available, calls)
        called = {name(call.vehicle): call for call in calls if hidden or call.steps}
        began = self.roster.exchange.clock()
        work = self.replies(method, state, present, called, wanted)
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

    def rests(
        self, kind: str, known: Known, asked: Collection[str], round: int
    ) -> Mapping[str, Mapping[str, Rest]]:
        """Who has missed how many rounds after this one; nobody is counted here (`rest`)."""
        return known.rests

    def awake(self, names: list[str], known: Known) -> list[str]:
        """Those of `names` that are asked to judge a model."""
        return names

    @abstractmethod
    def replies(
        self,
        method: Method,
        state: State,
        present: Present,
        called: Mapping[str, Call],
        wanted: int,
    ) -> "Work | Unanswered":
        """What comes back from the vehicles called; what cannot be used is not counted.

        The round is over when `wanted` of them have replied.
        """

    def training_questions(
        self, method: Method, state: State, present: Present
    ) -> Callable[[str], Content]:
        """What each vehicle is asked, by its name, in the round that follows `state`."""
        known = Known.unpacked(state.events)
        question = RoundQuestion(
            state.round,
            -1,
            len(present.members.population),
            present.members.population_windows,
            self.config.deploy.diagnostics,
            state.weights[0].cpu().numpy(),
            self.sent(method, state),
        )
        alike, counted = question.content({**self.common, **made_values(known.made)}), known.counted
        return lambda name: Content(
            {**alike.values, "counted": counted.get(name, -1)}, alike.arrays
        )

    def sent(self, method: Method, state: State) -> dict[str, NDArray[Any]]:
        """What the server rule sends with the model of `state`."""
        dtype = state.weights.dtype
        return {
            key: (v.to(dtype) if v.is_floating_point() else v)[0].cpu().numpy()
            for key, v in method.server.broadcast(state.server).items()
        }

    def judge(self, weights: Tensor, events: Rows, present: Present) -> Judgement:
        """Error sums of the model [1, D]; vehicles that do not answer have no test errors.

        Their validation errors are their last ones, so that the best of two rounds is chosen
        between errors on the same vehicles: without them a round would look better because a
        vehicle that is hard to predict was away. Where a vehicle answers for the first time, the
        model cannot be compared with those that it never judged.
        """
        known = Known.unpacked(events)
        names = [present.members.name(k) for k in present.members.evaluated]
        sums = {name: (known.validation.get(name, ErrorSums()), ErrorSums()) for name in names}
        question, asked = self.judging_question(weights, known), self.awake(names, known)
        answers = self._judgements(dict.fromkeys(asked, question))
        rests, most = self.rests("evaluate", known, asked, known.round), self.roster.heaviest()
        for name, answer in answers.items():
            try:
                sums[name] = self._judged(name, answer, most)
            except DataError as error:
                log.warning("evaluation of %s rejected: %s", name, error)
                if not answer.refused:
                    self.roster.conduct.fault(name, f"its errors of a model: {error}")
        latest = {name: own[0] for name, own in sums.items() if own[0].windows}
        newcomers = latest.keys() - known.validation.keys()
        judging = sum(own[1].windows > 0 for own in sums.values())
        if judging < len(names):
            log.info("the model was judged by %d of %d vehicles", judging, len(names))
        if not self.roster.hidden:
            tell_margin([own[1] for own in sums.values()], len(self.roster.members))
        evaluation = Evaluation([sums[name][0] for name in names], [sums[n][1] for n in names])
        after = replace(known, validation={**known.validation, **latest}, rests=rests)
        comparable = not (known.validation and newcomers)
        return Judgement([evaluation], after.packed(), comparable)

    def _judgements(self, questions: Mapping[str, Content]) -> dict[str, Answer]:
        """Answers to questions about a model's errors."""
        seconds, share = self.config.deploy.evaluation_seconds, self.config.deploy.close_share
        return self.roster.ask("evaluate", questions, seconds, sizes=self.sizes, share=share)

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
        """Error sums of the vehicles' own models, of those that answer."""
        members = self.members()
        names = [members.name(k) for k in members.evaluated]
        sent = {SENT + name: array for name, array in self.sent(method, state).items()}
        known = Known.unpacked(state.events)
        question = self.judging_question(state.weights, known)
        question = Content({**question.values, AFTER: state.round}, {**question.arrays, **sent})
        answers = self._judgements(dict.fromkeys(self.awake(names, known), question))
        sums = dict.fromkeys(names, (ErrorSums(), ErrorSums()))
        most = self.roster.heaviest()
        for name, answer in answers.items():
            try:
                sums[name] = self._judged(name, answer, most)
            except DataError as error:
                log.warning("evaluation of the own model of %s rejected: %s", name, error)
        return [Evaluation([sums[n][0] for n in names], [sums[n][1] for n in names]) for _ in runs]

    def _judged(
        self, name: str, answer: Answer, heaviest: Sequence[float]
    ) -> tuple[ErrorSums, ErrorSums]:
        """A vehicle's validation and test errors; DataError if they cannot be true.

        They are of the windows that it enrolled with, and count for no more than those of some
        vehicles together: whoever enrols with millions would be all that a report shows.
        """
        own, enrolled = answer.usable().arrays, self.roster.members[name].windows
        found = []
        for place, split in ((1, "validation"), (2, "test")):
            sums = possible_sums(own[split], enrolled[place])
            found.append(scaled_down(sums, min(sums.windows, heaviest[place])))
        return found[0], found[1]
