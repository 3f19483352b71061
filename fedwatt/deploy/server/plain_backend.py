"""Connected vehicles whose updates are seen one by one, and checked."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy.server.back_off import BackOff, skipped_vehicles, updated
from fedwatt.deploy.server.backend import DeployedBackend
from fedwatt.deploy.server.final_errors import log_margin, possible_sums
from fedwatt.deploy.server.limits import capped, scaled_down, shortened
from fedwatt.deploy.server.progress import Progress
from fedwatt.deploy.server.quorum import Unanswered
from fedwatt.deploy.server.requests import Reply
from fedwatt.deploy.vehicle.messages import BROADCAST, ReplyForm, training_form
from fedwatt.deploy.wire import Content
from fedwatt.engine.call import Call
from fedwatt.errors import DataError
from fedwatt.federation import State
from fedwatt.federation.backend import ModelEvaluation, Present
from fedwatt.federation.participation import Members
from fedwatt.federation.records import Evaluation
from fedwatt.federation.work import Work, no_work
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.metrics import ErrorSums

log = logging.getLogger("fedwatt.deploy")

LEAST_ACCUMULATION = 0.01
"""Least ‖a_k‖₁: the last gradient counts in full, so 1 but for a pull of nearly twice the rate."""

RESIZED = "it has other windows now:"


class PlainBackend(DeployedBackend):
    """Connected vehicles of which every update is seen."""

    evaluators = 200

    @property
    def training_form(self) -> ReplyForm:
        """Return the form of updates."""
        precision = self.terms.training.precision
        diagnostics = self.config.deploy.diagnostics
        return training_form(self.method, self.model, precision, diagnostics=diagnostics)

    def present(self, state: State | None) -> Present:
        """Return who is connected and not skipped; nobody is skipped if too few would be left."""
        present = super().present(state)
        progress = Progress() if state is None else Progress.unpacked(state.events)
        skipped = skipped_vehicles(progress.back_offs.get("train", {}), progress.round)
        if not skipped:
            return present
        members = present.members
        asked = [members.name(int(k)) not in skipped for k in members.population]
        available = present.available & torch.tensor(asked)
        if available.sum() < self.quorum.needed:
            return present
        return replace(present, available=available, available_next=available)

    def back_offs(
        self, kind: str, progress: Progress, asked: Collection[str], round: int
    ) -> Mapping[str, Mapping[str, BackOff]]:
        """Return the back-offs after a round, and write new ones to the events."""
        after = 0 if self.private else self.config.deploy.backoff_after
        if not after:
            return progress.back_offs
        every = self.terms.training.evaluate_every if kind == "evaluate" else 1
        missed = self.roster.missed
        before = progress.back_offs.get(kind, {})
        found = updated(before, asked, missed, round, after=after, every=every)
        fresh = {
            n: back_off for n, back_off in found.items() if n in asked and back_off.resume_round
        }
        self.roster.events.backing_off(kind, fresh, missed)
        return {**progress.back_offs, kind: found}

    def asked_to_evaluate(self, names: list[str], progress: Progress) -> list[str]:
        """Return those of `names` that are not skipped; all if everyone is."""
        skipped = skipped_vehicles(progress.back_offs.get("evaluate", {}), progress.round)
        return [name for name in names if name not in skipped] or names

    def replies(
        self, state: State, present: Present, called: Mapping[str, Call], wanted: int
    ) -> Work | Unanswered:
        """Return the updates of the vehicles called; those that cannot be used do not count."""
        request = self.training_requests(state, present)
        requests = {name: request(name) for name in called}
        form = self.training_form
        seconds = self.config.deploy.round_seconds
        share = self.config.deploy.close_share
        answers = self.roster.ask(form, requests, seconds, enough=wanted, share=share)
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
        answers: Mapping[str, Reply],
    ) -> Work:
        """Answers to a round that trains the model `before` [1, D]; not all of them count."""
        found = {
            name: self._reply(round, name, called[name], answer) for name, answer in answers.items()
        }
        return self._stacked(round, before, members, called, found)

    def _reply(self, round: int, name: str, call: Call, answer: Reply) -> Content | None:
        """Return a reply that may count; None, with a warning in the log, for one that must not."""
        trouble = answer.trouble or self._fault(name, call, answer)
        if trouble:
            log.warning("round %d: reply of %s rejected: %s", round + 1, name, trouble)
            self.roster.events.uncounted(name, trouble)
            if not answer.refused and not trouble.startswith(RESIZED):
                self.roster.faults.add(name, trouble)
            return None
        return answer.content

    def _fault(self, name: str, call: Call, answer: Reply) -> str:
        """Return the fault of a reply that has the declared fields; empty if it has none."""
        assert answer.content is not None
        values = answer.content.values
        arrays = answer.content.arrays
        missing = {*self.method.upload_names} - {*arrays}
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
        """Return replies as the aggregation takes them; rejected ones are rows that do not
        count.
        """
        rows = len(found)
        method = self.method
        usable = np.array([content is not None for content in found.values()])
        deltas = torch.zeros(rows, before.shape[1], dtype=before.dtype)
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
                log.warning("round %d: reply of %s is not finite", round + 1, name)
                self.roster.faults.add(name, "its reply is not finite")
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
        """Return replies no longer than the limit; a longer one is shortened, and is a fault."""
        bound = self.config.deploy.norm_bound
        deltas, long = shortened(deltas, usable, bound)
        vectors = {
            n: own for n, own in uploads.items() if own.dim() == 2 and own.is_floating_point()
        }
        for name, own in vectors.items():
            uploads[name], longer = shortened(own, usable, bound)
            long = long | longer
        for row in np.flatnonzero(long):
            self.roster.faults.add(
                names[row], f"its reply is over {bound:g} times as long as usual"
            )
        return deltas, uploads

    def evaluate(self, weights: Tensor, events: Rows, present: Present) -> ModelEvaluation:
        """Error sums of the model [1, D]; vehicles that do not answer have no test errors.

        Their validation errors are their last ones, so that the best of two rounds is chosen
        between errors on the same vehicles: without them a round would look better because a
        vehicle that is hard to predict was away. Where a vehicle answers for the first time, the
        model cannot be compared with those that it never evaluated.
        """
        progress = Progress.unpacked(events)
        names = [present.members.name(k) for k in present.members.evaluated]
        sums = {name: (progress.validation.get(name, ErrorSums()), ErrorSums()) for name in names}
        request = self.evaluation_request(weights, progress)
        asked = self.asked_to_evaluate(names, progress)
        answers = self._evaluations(asked, request)
        back_offs = self.back_offs("evaluate", progress, asked, progress.round)
        most = self.roster.heaviest()
        for name, answer in answers.items():
            try:
                sums[name] = self.vehicle_errors(name, answer, most)
            except DataError as error:
                log.warning("evaluation of %s rejected: %s", name, error)
                if not answer.refused:
                    self.roster.faults.add(name, f"its errors of a model: {error}")
        latest = {name: own[0] for name, own in sums.items() if own[0].windows}
        new = latest.keys() - progress.validation.keys()
        evaluated = sum(own[1].windows > 0 for own in sums.values())
        if evaluated < len(names):
            log.info("%d of %d vehicles evaluated the model", evaluated, len(names))
        log_margin([own[1] for own in sums.values()], len(self.roster.members))
        evaluation = Evaluation([sums[name][0] for name in names], [sums[n][1] for n in names])
        validation = {**progress.validation, **latest}
        after = replace(progress, validation=validation, back_offs=back_offs)
        comparable = not (progress.validation and new)
        return ModelEvaluation([evaluation], after.packed(), comparable)

    def _evaluations(self, names: list[str], request: Content) -> dict[str, Reply]:
        """Return the vehicles' errors of a model."""
        seconds = self.config.deploy.evaluation_seconds
        share = self.config.deploy.close_share
        requests = dict.fromkeys(names, request)
        form = ReplyForm(str(request.values["kind"]))
        return self.roster.ask(form, requests, seconds, share=share)

    def evaluate_personalised(
        self, method: Method, state: State, runs: Sequence[int]
    ) -> list[Evaluation | None]:
        """Return error sums of the models that vehicles with personal parts use."""
        members = self.members()
        names = [members.name(k) for k in members.evaluated]
        sent = {BROADCAST + name: array for name, array in self.broadcast(state).items()}
        progress = Progress.unpacked(state.events)
        request = self.evaluation_request(state.weights, progress)
        values = {**request.values, "kind": "evaluate-personalised", "round": state.round}
        request = Content(values, {**request.arrays, **sent})
        answers = self._evaluations(self.asked_to_evaluate(names, progress), request)
        sums = dict.fromkeys(names, (ErrorSums(), ErrorSums()))
        most = self.roster.heaviest()
        for name, answer in answers.items():
            try:
                sums[name] = self.vehicle_errors(name, answer, most)
            except DataError as error:
                log.warning("evaluation of the model of %s rejected: %s", name, error)
        return [Evaluation([sums[n][0] for n in names], [sums[n][1] for n in names]) for _ in runs]

    def vehicle_errors(
        self, name: str, answer: Reply, heaviest: Sequence[float]
    ) -> tuple[ErrorSums, ErrorSums]:
        """Return a vehicle's validation and test errors; DataError if they cannot be true.

        They are of the windows that it enrolled with, and count for no more than those of some
        vehicles together: whoever enrols with millions would be all that a report shows.
        """
        own = answer.usable().arrays
        enrolled = self.roster.members[name].windows
        found = []
        for place, split in ((1, "validation"), (2, "test")):
            sums = possible_sums(own[split], enrolled[place])
            found.append(scaled_down(sums, min(sums.windows, heaviest[place])))
        return found[0], found[1]


def accumulation_fault(arrays: Mapping[str, NDArray[Any]], steps: int) -> str:
    """Return the reason why FedNova's ‖a_k‖₁ of H_k = `steps` cannot be divided by; empty if it
    can, or is not there.

    Momentum repeats gradients most, with ρ → 1: ‖a_k‖₁ → 1 + 2 + ... + H_k.

    >>> accumulation_fault({"accumulation": np.array(48.24)}, 11)
    ''
    >>> accumulation_fault({"accumulation": np.array(0.0)}, 11)
    'its accumulation is 0, and 11 steps make 0.01 to 66'
    """
    if "accumulation" not in arrays:
        return ""
    found = float(arrays["accumulation"])
    most = steps * (steps + 1) / 2
    # The closed forms are float64 and lose a few digits where ρ is nearly 1.
    if LEAST_ACCUMULATION <= found <= most * (1 + 1e-6):
        return ""
    return f"its accumulation is {found:g}, and {steps} steps make {LEAST_ACCUMULATION} to {most:g}"
