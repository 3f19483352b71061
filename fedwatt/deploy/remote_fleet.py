"""A real fleet whose vehicles reply one by one, as the loop sees it."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy.exchange import Answer
from fedwatt.deploy.known import Known
from fedwatt.deploy.limits_of_replies import capped, scaled_down, shortened
from fedwatt.deploy.messages import Content, ReplyForm
from fedwatt.deploy.questions import AFTER, SENT, training_form
from fedwatt.deploy.quorum import Unanswered
from fedwatt.deploy.rest import Rest, rested, resting
from fedwatt.deploy.road_fleet import RoadFleet
from fedwatt.deploy.updates import ROUNDING, expanded, told, update_fields
from fedwatt.deploy.vehicle_errors import possible_sums, tell_margin
from fedwatt.engine.call import Call
from fedwatt.errors import DataError
from fedwatt.federation import State
from fedwatt.federation.members import Members
from fedwatt.federation.port import Judgement, Present
from fedwatt.federation.records import Evaluation
from fedwatt.federation.work import Work, no_work
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.metrics import ErrorSums
from fedwatt.runs.deployment import FULL

log = logging.getLogger("fedwatt.deploy")

LEAST_ACCUMULATION = 0.01
"""Least ‖a_k‖₁: the last gradient counts in full, so 1 but for a pull of nearly twice the rate."""

RESIZED = "it has other windows now:"


class RemoteFleet(RoadFleet):
    """Answers for a real fleet of which every reply is seen, and checked."""

    judges = 200

    @property
    def training_form(self) -> ReplyForm:
        """What replies to a round say."""
        precision, own = self.terms.training.precision, self.config.deploy
        return training_form(self.method, self.model, precision, own, diagnostics=own.diagnostics)

    def present(self, state: State | None) -> Present:
        """Who is connected and does not rest; nobody rests if too few would be left."""
        present = super().present(state)
        known = Known() if state is None else Known.unpacked(state.events)
        left_out, members = resting(known.rests.get("train", {}), known.round), present.members
        if not left_out:
            return present
        awake = [members.name(int(k)) not in left_out for k in members.population]
        available = present.available & torch.tensor(awake)
        if available.sum() < self.quorum.needed:
            return present
        return replace(present, available=available, available_next=available)

    def rests(
        self, kind: str, known: Known, asked: Collection[str], round: int
    ) -> Mapping[str, Mapping[str, Rest]]:
        """Who has missed how many rounds after this one, which the events tell of."""
        after = 0 if self.private else self.config.deploy.rest_after
        if not after:
            return known.rests
        every = self.terms.training.evaluate_every if kind == "evaluate" else 1
        missed, before = self.roster.missed, known.rests.get(kind, {})
        found = rested(before, asked, missed, round, after=after, every=every)
        fresh = {name: own for name, own in found.items() if name in asked and own.until}
        self.roster.events.rests(kind, fresh, missed)
        return {**known.rests, kind: found}

    def awake(self, names: list[str], known: Known) -> list[str]:
        """Those of `names` that are asked to judge a model: who rests is not, unless all do."""
        left_out = resting(known.rests.get("evaluate", {}), known.round)
        return [name for name in names if name not in left_out] or names

    def replies(
        self, state: State, present: Present, called: Mapping[str, Call], wanted: int
    ) -> Work | Unanswered:
        """What comes back from the vehicles called; what cannot be used is not counted."""
        question = self.training_questions(state, present)
        questions = {name: question(name) for name in called}
        form, seconds = self.training_form, self.config.deploy.round_seconds
        share = self.config.deploy.close_share
        answers = self.roster.ask(form, questions, seconds, enough=wanted, share=share)
        if len(answers) < min(self.config.deploy.quorum, len(called)) and not self.private:
            return Unanswered(frozenset(answers))
        if not answers:
            return no_work(state.weights)
        return self.checked(state.round, state.weights, present.members, called, answers)

    def checked(
        self,
        round: int,
        before: Tensor,
        members: Members,
        called: Mapping[str, Call],
        answers: Mapping[str, Answer],
    ) -> Work:
        """Answers to a round that trains the model `before` [1, D]; not all of them count."""
        found = {
            name: self._reply(round, name, called[name], answer) for name, answer in answers.items()
        }
        return self._stacked(round, before, members, called, found)

    def _reply(self, round: int, name: str, call: Call, answer: Answer) -> Content | None:
        """A reply that may count; None, with a warning in the log, for one that must not."""
        trouble = answer.trouble or self._fault(round, name, call, answer)
        if trouble:
            log.warning("round %d: reply of %s rejected: %s", round + 1, name, trouble)
            self.roster.events.uncounted(name, trouble)
            if not answer.refused and not trouble.startswith(RESIZED):
                self.roster.conduct.fault(name, trouble)
            return None
        return answer.content

    def _fault(self, round: int, name: str, call: Call, answer: Answer) -> str:
        """What is wrong with a reply that has the declared fields; empty if nothing."""
        assert answer.content is not None
        values, arrays = answer.content.values, answer.content.arrays
        if values["round"] != round:
            return f"it answers round {values['round']!r}"
        needed = {*self.method.upload_names, *update_fields(self.config.deploy.update_type, 0)}
        missing = needed - {*arrays, *values}
        if missing:
            return f"it lacks '{min(missing)}'"
        windows = values["windows"]
        assert isinstance(windows, int)
        if not self.roster.possible(windows):
            return f"it has {windows} windows"
        if windows == self.roster.members[name].windows[0]:
            return accumulation_fault(arrays, call.steps)
        self.roster.resize(name, windows)
        return f"{RESIZED} {windows}, and not those it enrolled with"

    def _stacked(
        self,
        round: int,
        before: Tensor,
        members: Members,
        names: Mapping[str, Call],
        found: Mapping[str, Content | None],
    ) -> Work:
        """Replies as the aggregation takes them; rejected ones are rows that do not count."""
        rows, method = len(found), self.method
        usable = np.array([content is not None for content in found.values()])
        deltas = torch.zeros(rows, before.shape[1], dtype=before.dtype)
        uploads: dict[str, Tensor] = {}
        columns = {column.name: [nan] * rows for column in method.records}
        for row, content in enumerate(found.values()):
            if content is None:
                continue
            deltas[row] = torch.from_numpy(expanded(content.arrays))
            for name in method.upload_names:
                value = torch.from_numpy(content.arrays[name])
                table = uploads.setdefault(name, value.new_zeros((rows, *value.shape)))
                table[row] = value
            for name, values in columns.items():
                recorded = content.values.get(name)
                values[row] = recorded if isinstance(recorded, float) else nan
        if (kind := self.config.deploy.update_type) != FULL:
            losses = [float(str(c.values[ROUNDING])) for c in found.values() if c is not None]
            size, dtype = before.shape[1], before.dtype
            log.info("round %d: %s", round + 1, told(kind, size, dtype, losses))
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
                log.warning("round %d: reply of %s is not finite", round + 1, name)
                self.roster.conduct.fault(name, "its reply is not finite")
        calls = [names[name] for name in found]
        deltas, uploads = self._bounded(list(found), deltas, uploads, finite & usable)
        # One vehicle's NaN must not end a run; that all of several send it may.
        diverged = rows > 1 and not finite[usable].any() and usable.sum() > 1
        everybody = [members.windows(int(k)) for k in members.population]
        sizes = [members.windows(call.vehicle) for call in calls]
        return Work(
            calls,
            deltas.to(self.device),
            capped(sizes, everybody, self.config.deploy.weight_cap),
            np.full(rows, not diverged),
            finite & usable,
            {},
            {name: table.to(self.device) for name, table in uploads.items()},
            columns,
        )

    def _bounded(
        self,
        names: list[str],
        deltas: Tensor,
        uploads: dict[str, Tensor],
        usable: NDArray[np.bool_],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Replies no longer than the limit; a longer one is shortened, and is a fault."""
        bound = self.config.deploy.norm_bound
        deltas, long = shortened(deltas, usable, bound)
        vectors = {
            n: own for n, own in uploads.items() if own.dim() == 2 and own.is_floating_point()
        }
        for name, own in vectors.items():
            uploads[name], longer = shortened(own, usable, bound)
            long = long | longer
        for row in np.flatnonzero(long):
            self.roster.conduct.fault(
                names[row], f"its reply is over {bound:g} times as long as usual"
            )
        return deltas, uploads

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
        answers = self._judgements(asked, question)
        rests, most = self.rests("evaluate", known, asked, known.round), self.roster.heaviest()
        for name, answer in answers.items():
            try:
                sums[name] = self.own_errors(name, answer, most)
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

    def _judgements(self, names: list[str], question: Content) -> dict[str, Answer]:
        """Answers to a question about a model's errors."""
        seconds, share = self.config.deploy.evaluation_seconds, self.config.deploy.close_share
        questions = dict.fromkeys(names, question)
        return self.roster.ask(ReplyForm("evaluate"), questions, seconds, share=share)

    def judge_own(
        self, method: Method, state: State, runs: Sequence[int]
    ) -> list[Evaluation | None]:
        """Error sums of the vehicles' own models, of those that answer."""
        members = self.members()
        names = [members.name(k) for k in members.evaluated]
        sent = {SENT + name: array for name, array in self.sent(state).items()}
        known = Known.unpacked(state.events)
        question = self.judging_question(state.weights, known)
        question = Content({**question.values, AFTER: state.round}, {**question.arrays, **sent})
        answers = self._judgements(self.awake(names, known), question)
        sums = dict.fromkeys(names, (ErrorSums(), ErrorSums()))
        most = self.roster.heaviest()
        for name, answer in answers.items():
            try:
                sums[name] = self.own_errors(name, answer, most)
            except DataError as error:
                log.warning("evaluation of the own model of %s rejected: %s", name, error)
        return [Evaluation([sums[n][0] for n in names], [sums[n][1] for n in names]) for _ in runs]

    def own_errors(
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
