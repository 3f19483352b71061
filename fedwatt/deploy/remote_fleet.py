"""A real fleet whose vehicles reply one by one, as the loop sees it."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy.exchange import Answer
from fedwatt.deploy.known import Known
from fedwatt.deploy.limits_of_replies import capped, shortened
from fedwatt.deploy.messages import Content, ReplyField
from fedwatt.deploy.questions import asked_of
from fedwatt.deploy.quorum import Unanswered
from fedwatt.deploy.rest import Rest, rested, resting
from fedwatt.deploy.road_fleet import RoadFleet
from fedwatt.deploy.updates import ROUNDING, expanded, told, update_fields
from fedwatt.engine.call import Call
from fedwatt.federation import State
from fedwatt.federation.members import Members
from fedwatt.federation.port import Present
from fedwatt.federation.work import Work, no_work
from fedwatt.methods import Method
from fedwatt.runs.deployment import FULL

log = logging.getLogger("fedwatt.deploy")

LEAST_ACCUMULATION = 0.01
"""Least ‖a_k‖₁: the last gradient counts in full, so 1 but for a pull of nearly twice the rate."""

RESIZED = "it has other windows now:"


class RemoteFleet(RoadFleet):
    """Answers for a real fleet of which every reply is seen, and checked."""

    judges = 200

    def check(self, method: Method) -> None:
        """Refuse a method that cannot work in rounds of these vehicles."""
        self.check_terms(method)

    @property
    def training_fields(self) -> dict[str, ReplyField]:
        """What replies to a round may say besides what all of them do."""
        own = self.config.deploy
        return asked_of(
            self.method, self.model, diagnostics=own.diagnostics, update=own.update_type
        )

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
        self,
        method: Method,
        state: State,
        present: Present,
        called: Mapping[str, Call],
        wanted: int,
    ) -> Work | Unanswered:
        """What comes back from the vehicles called; what cannot be used is not counted."""
        question = self.training_questions(method, state, present)
        questions = {name: question(name) for name in called}
        settings = self.config.deploy
        answers = self.roster.ask(
            "train",
            questions,
            settings.round_seconds,
            sizes=self.sizes,
            asked=self.training_fields,
            enough=wanted,
            share=settings.close_share,
        )
        if len(answers) < min(self.config.deploy.quorum, len(called)) and not self.private:
            return Unanswered(frozenset(answers))
        if not answers:
            return no_work(state.weights)
        return self.checked(method, state.round, state.weights, present.members, called, answers)

    def steps(self, members: Members, vehicle: int) -> int:
        """H_k of a vehicle that has told how many windows it has."""
        speed = self.terms.speed(0, members.name(vehicle))
        return self.terms.steps(members.windows(vehicle), speed)

    def checked(
        self,
        method: Method,
        round: int,
        before: Tensor,
        members: Members,
        called: Mapping[str, Call],
        answers: Mapping[str, Answer],
    ) -> Work:
        """Answers to a round that trains the model `before` [1, D]; not all of them count."""
        found = {
            name: self._reply(method, round, name, called[name], answer)
            for name, answer in answers.items()
        }
        return self._stacked(method, round, before, members, called, found)

    def _reply(
        self, method: Method, round: int, name: str, call: Call, answer: Answer
    ) -> Content | None:
        """A reply that may count; None, with a warning in the log, for one that must not."""
        trouble = answer.trouble or self._fault(method, round, name, call, answer)
        if trouble:
            log.warning("round %d: reply of %s rejected: %s", round + 1, name, trouble)
            self.roster.events.uncounted(name, trouble)
            if not answer.refused and not trouble.startswith(RESIZED):
                self.roster.conduct.fault(name, trouble)
            return None
        return answer.content

    def _fault(self, method: Method, round: int, name: str, call: Call, answer: Answer) -> str:
        """What is wrong with a reply that has the declared fields; empty if nothing."""
        assert answer.content is not None
        values, arrays = answer.content.values, answer.content.arrays
        if values["round"] != round:
            return f"it answers round {values['round']!r}"
        needed = {*method.upload_names, *update_fields(self.config.deploy.update_type, 0)}
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
        method: Method,
        round: int,
        before: Tensor,
        members: Members,
        names: Mapping[str, Call],
        found: Mapping[str, Content | None],
    ) -> Work:
        """Replies as the aggregation takes them; rejected ones are rows that do not count."""
        rows = len(found)
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
