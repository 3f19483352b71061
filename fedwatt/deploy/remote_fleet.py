"""A real fleet as the loop sees it: vehicles are asked where a simulation would train them.

Who takes part, how replies become the next model, what is recorded and which model is best are the
loop's own lines (`federation.loop`).
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import nan
from secrets import randbits
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy.exchange import Answer
from fedwatt.deploy.known import Known
from fedwatt.deploy.messages import Content, Sizes, Value
from fedwatt.deploy.questions import RoundQuestion, asked_of, sizes_of
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.state import RunState
from fedwatt.deploy.vehicle_errors import VehicleErrors, possible_sums
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
from fedwatt.federation.work import Work, enough, no_work
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.metrics import ErrorSums, Stopwatch
from fedwatt.models import Model
from fedwatt.randomness import generator
from fedwatt.runs.config import MethodChoice, RunConfig, to_toml

log = logging.getLogger("fedwatt.deploy")

LEAST_ACCUMULATION = 0.01
"""Least ‖a_k‖₁: the last gradient counts in full, so 1 but for a pull of nearly twice the rate."""


@dataclass(frozen=True, eq=False)
class RemoteFleet:
    """Answers for vehicles that are elsewhere; they keep their own memory."""

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
    secret: int = field(default_factory=lambda: randbits(128))
    """Seed of a private method's draws: ε counts on nobody knowing them, and vehicles know the
    run's seed."""

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
            "config": to_toml(config),
        }
        if roster.provision is not None:
            common |= roster.provision.question_values
        fleet = roster.fleet(config.data)
        terms = Terms(choice.training(config.training), config.availability, config.seeds)
        model = fitting_model(config.model.on(fleet), fleet)
        sizes = sizes_of(choice.method, model, terms.training.precision)
        errors = VehicleErrors(roster, config, common, sizes, level)
        device = resolve_device(config.device)
        return cls(roster, run, config, choice.method, terms, model, device, common, errors)

    def loop(self) -> Loop:
        """The loop over the rounds of these vehicles."""
        return Loop(self, self.terms, self.model, self.device)

    @property
    def sizes(self) -> Sizes:
        """Lengths of what the method's messages hold."""
        return self.errors.sizes

    @property
    def private(self) -> bool:
        """Whether the method adds noise for privacy."""
        return self.method.server.private

    def members(self) -> Members:
        """The vehicles that have enrolled so far."""
        fleet = self.roster.fleet(self.config.data)
        return Members(fleet, self.terms.training.evaluate_vehicles)

    def check(self, method: Method) -> None:
        """Refuse a method that cannot work in rounds of these vehicles."""
        self.terms.check(method, len(self.members().population))

    def remembered(self, method: Method, weights: Tensor) -> tuple[dict[str, Table], Rows]:
        """Vehicles remember for themselves; nothing is known of them yet."""
        return {}, Known().packed()

    def present(self, state: State | None) -> Present:
        """Who is connected now, newcomers included."""
        self.roster.refresh()
        members = self.members()
        there = torch.from_numpy(self.roster.available(members.fleet))[None]
        return Present(members, there, there)

    def server_draws(self, run: int, round: int, work: Work) -> np.random.Generator:
        """The run's; for a private method secret ones.

        Other replies to the same round get other noise, since the difference of two models with the
        same noise would show the replies.
        """
        if not self.private:
            return generator(self.terms.seeds[run], "server", round)
        replies = sha256(work.deltas.cpu().numpy().tobytes() + work.counted.tobytes())
        return generator(self.secret, "server", round, replies.hexdigest())

    def vehicle_rows(self, weights: Tensor) -> list[Row]:
        """Test errors of the model [1, D] by vehicle and stratum, of those that answer."""
        return self.errors.of_model(weights)

    def work(self, method: Method, state: State, present: Present, watch: Stopwatch) -> Work:
        """Ask the participants to train; the roster is told who did not do what it was asked to."""
        secret = self.secret if self.private else None
        calls = self.terms.calls(
            state.round, present.members, present.available, state.live, calling_seed=secret
        )
        name = present.members.name
        called = {name(call.vehicle): call for call in calls if call.steps}
        work = self.replies(method, state, present, called)
        work = enough(work, max(self.config.deploy.minimum_replies, method.replies_needed))
        pairs = zip(work.calls, work.counted, strict=True)
        counted = {name(call.vehicle) for call, counts in pairs if counts}
        for silent in called.keys() - counted:
            self.roster.unanswered(silent)
        known = Known.unpacked(state.events)
        known = replace(known, counted={**known.counted, **dict.fromkeys(counted, state.round)})
        return replace(work, asked=calls, events=known.packed())

    def replies(
        self, method: Method, state: State, present: Present, called: Mapping[str, Call]
    ) -> Work:
        """What comes back from the vehicles called; what cannot be used is not counted."""
        questions = {name: self.training_question(method, state, present, name) for name in called}
        asked = asked_of(method, self.model, diagnostics=self.config.deploy.diagnostics)
        seconds = self.config.deploy.round_seconds
        answers = self.roster.ask("train", questions, seconds, sizes=self.sizes, asked=asked)
        if not answers:
            return no_work(state.weights)
        found = {
            name: self._reply(method, state.round, name, called[name], answer)
            for name, answer in answers.items()
        }
        return self._stacked(method, state, present, called, found)

    def training_question(
        self, method: Method, state: State, present: Present, name: str
    ) -> Content:
        """What the vehicle `name` is asked in the round that follows `state`."""
        anchor = state.weights[0]
        sent = {
            key: (v.to(anchor.dtype) if v.is_floating_point() else v)[0].cpu().numpy()
            for key, v in method.server.broadcast(state.server).items()
        }
        question = RoundQuestion(
            state.round,
            Known.unpacked(state.events).counted.get(name, -1),
            len(present.members.population),
            present.members.population_windows,
            self.config.deploy.diagnostics,
            anchor.cpu().numpy(),
            sent,
        )
        return question.content(self.common)

    def _reply(
        self, method: Method, round: int, name: str, call: Call, answer: Answer
    ) -> Content | None:
        """A reply that may count; None, with a warning in the log, for one that must not."""
        trouble = answer.trouble or self._fault(method, round, name, call, answer)
        if trouble:
            log.warning("round %d: reply of %s rejected: %s", round + 1, name, trouble)
            return None
        return answer.content

    def _fault(self, method: Method, round: int, name: str, call: Call, answer: Answer) -> str:
        """What is wrong with a reply that has the declared fields; empty if nothing."""
        assert answer.content is not None
        values, arrays = answer.content.values, answer.content.arrays
        if values["round"] != round:
            return f"it answers round {values['round']!r}"
        missing = set(method.upload_names) - set(arrays)
        if missing:
            return f"it lacks '{min(missing)}'"
        windows = values["windows"]
        assert isinstance(windows, int)
        if not self.roster.possible(windows):
            return f"it has {windows} windows"
        if windows == self.roster.members[name].windows[0]:
            return accumulation_fault(arrays, call.steps)
        self.roster.resize(name, windows)
        return f"it has {windows} windows now, and not those it enrolled with"

    def _stacked(
        self,
        method: Method,
        state: State,
        present: Present,
        names: Mapping[str, Call],
        found: Mapping[str, Content | None],
    ) -> Work:
        """Replies as the aggregation takes them; rejected ones are rows that do not count."""
        rows = len(found)
        usable = np.array([content is not None for content in found.values()])
        deltas = torch.zeros(rows, state.weights.shape[1], dtype=state.weights.dtype)
        uploads: dict[str, Tensor] = {}
        columns = {column.name: [nan] * rows for column in method.records}
        for row, content in enumerate(found.values()):
            if content is None:
                continue
            deltas[row] = torch.from_numpy(content.arrays["delta"])
            for name in method.upload_names:
                value = torch.from_numpy(content.arrays[name])
                table = uploads.setdefault(name, value.new_zeros((rows, *value.shape)))
                table[row] = value
            for name, values in columns.items():
                recorded = content.values.get(name)
                values[row] = recorded if isinstance(recorded, float) else nan
        finite = deltas.isfinite().all(dim=-1).numpy()
        for table in uploads.values():
            finite &= table.reshape(rows, -1).isfinite().all(dim=-1).numpy()
        columns["drift"] = torch.where(
            torch.from_numpy(usable), deltas.double().norm(dim=-1), nan
        ).tolist()
        # The server rule reads every row's upload shape, so those that do not count stay finite.
        deltas = torch.where(torch.from_numpy(finite)[:, None], deltas, 0.0)
        for name, well in zip(found, finite, strict=True):
            if not well:
                log.warning("round %d: reply of %s is not finite", state.round + 1, name)
        # One vehicle's NaN must not end a run; that all of several send it may.
        diverged = rows > 1 and not finite[usable].any() and usable.sum() > 1
        calls = [names[name] for name in found]
        return Work(
            calls,
            deltas.to(self.device),
            np.array([float(present.members.windows(call.vehicle)) for call in calls]),
            np.full(rows, not diverged),
            finite & usable,
            {},
            {name: table.to(self.device) for name, table in uploads.items()},
            columns,
        )

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
        question = Content(dict(self.common), {"weights": weights[0].cpu().numpy()})
        seconds, questions = self.config.deploy.evaluation_seconds, dict.fromkeys(names, question)
        answers = self.roster.ask("evaluate", questions, seconds, sizes=self.sizes)
        limit = self.config.secure.windows_limit
        for name, answer in answers.items():
            try:
                own = answer.usable().arrays
                validation, test = (possible_sums(own[n], limit) for n in ("validation", "test"))
                sums[name] = validation, test
            except DataError as error:
                log.warning("evaluation of %s rejected: %s", name, error)
        latest = {name: own[0] for name, own in sums.items() if own[0].windows}
        newcomers = latest.keys() - known.validation.keys()
        judging = sum(own[1].windows > 0 for own in sums.values())
        if judging < len(names):
            log.info("the model was judged by %d of %d vehicles", judging, len(names))
        evaluation = Evaluation([sums[name][0] for name in names], [sums[n][1] for n in names])
        after = replace(known, validation={**known.validation, **latest})
        comparable = not (known.validation and newcomers)
        return Judgement([evaluation], after.packed(), comparable)


def accumulation_fault(arrays: Mapping[str, NDArray[Any]], steps: int) -> str:
    """Why FedNova's ‖a_k‖₁ of H_k = `steps` cannot be divided by; empty if it can, or is not there.

    Momentum repeats gradients most, with ρ → 1: ‖a_k‖₁ → 1 + 2 + ... + H_k.

    >>> accumulation_fault({"accumulation": np.array(48.24)}, 11)
    ''
    >>> accumulation_fault({"accumulation": np.array(0.0)}, 11)
    'its accumulation is 0, and 11 steps make 0.01 to 66'
    """
    if "accumulation" not in arrays:
        return ""
    found, most = float(arrays["accumulation"]), steps * (steps + 1) / 2
    # The closed forms are float64 and lose a few digits where ρ is nearly 1.
    if LEAST_ACCUMULATION <= found <= most * (1 + 1e-6):
        return ""
    return f"its accumulation is {found:g}, and {steps} steps make {LEAST_ACCUMULATION} to {most:g}"
