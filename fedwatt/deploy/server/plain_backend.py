"""Connected vehicles whose updates are seen one by one, and checked."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, nan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy import log
from fedwatt.deploy.server.backend import DeployedBackend, Progress, Unanswered
from fedwatt.deploy.server.limits import capped, scaled_down, shortened
from fedwatt.deploy.server.requests import Reply
from fedwatt.deploy.server.sums import enrolled_errors
from fedwatt.deploy.vehicle.messages import ReplyForm, training_form
from fedwatt.deploy.wire import Content
from fedwatt.errors import DataError
from fedwatt.federation import State
from fedwatt.federation.evaluate import MOST_WINDOWS
from fedwatt.federation.loop import ModelEvaluation
from fedwatt.federation.participation import Call, Members, Present
from fedwatt.federation.records import Evaluation
from fedwatt.federation.work import Work, no_work
from fedwatt.methods.rule import Rows
from fedwatt.metrics import ErrorSums

LEAST_ACCUMULATION = 0.01
"""Least ‖a_k‖₁: the last gradient counts in full, so 1 but for a pull of nearly twice the rate."""


class PlainBackend(DeployedBackend):
    """Connected vehicles whose single updates the server sees: no secure aggregation."""

    evaluators = 200

    @property
    def training_form(self) -> ReplyForm:
        """Return the form of the replies that hold updates."""
        return training_form(self.method, self.model, self.terms.training.precision)

    def replies(
        self, state: State, present: Present, called: Mapping[str, Call], enough_replies: int
    ) -> Work | Unanswered:
        """Return the updates of the vehicles called; those that cannot be used do not count."""
        request = self.training_requests(state, present)
        requests = {name: request(name) for name in called}
        seconds = self.config.deploy.round_seconds
        answers = self.roster.ask(self.training_form, requests, seconds, enough=enough_replies)
        if len(answers) < min(self.config.deploy.quorum, len(called)) and not self.private:
            return Unanswered(frozenset(answers))
        if not answers:
            return no_work(state.weights)
        contents = {
            name: self.usable(state.round, name, called[name], reply)
            for name, reply in answers.items()
        }
        return self.stacked(state.round, state.weights, present.members, called, contents)

    def usable(self, round: int, name: str, call: Call, reply: Reply) -> Content | None:
        """Return a reply that may count; None, with a warning in the log, for one that must not."""
        content = reply.content
        if content is None:
            self._reject(round, name, reply.reason)
            return None
        windows = content.values["windows"]
        assert isinstance(windows, int)
        member = self.roster.members[name]
        if not 1 <= windows <= MOST_WINDOWS:
            self._reject(round, name, f"it has {windows} windows")
        elif windows != member.windows[0]:
            self.roster.members[name] = replace(member, windows=(windows, *member.windows[1:]))
            self._reject(round, name, f"it has {windows} windows now; it counts from the next on")
        elif fault := accumulation_fault(content.arrays, call.steps):
            self._reject(round, name, fault)
        else:
            return content
        return None

    def _reject(self, round: int, name: str, reason: str) -> None:
        log.warning("round %d: reply of %s rejected: %s", round + 1, name, reason)
        self.roster.events.uncounted(name, reason)

    def stacked(
        self,
        round: int,
        before: Tensor,
        members: Members,
        called: Mapping[str, Call],
        contents: Mapping[str, Content | None],
    ) -> Work:
        """Stack the replies as updates of the model `before` [1, D]; rejected ones do not count."""
        rows = len(contents)
        usable = np.array([content is not None for content in contents.values()])
        deltas = torch.zeros(rows, before.shape[1], dtype=before.dtype)
        uploads: dict[str, Tensor] = {}
        for row, content in enumerate(contents.values()):
            if content is None:
                continue
            deltas[row] = torch.from_numpy(content.arrays["delta"])
            for name in self.method.upload_names:
                value = torch.from_numpy(content.arrays[name])
                table = uploads.setdefault(name, value.new_zeros((rows, *value.shape)))
                table[row] = value
        finite = deltas.isfinite().all(dim=-1).numpy()
        for table in uploads.values():
            finite &= table.reshape(rows, -1).isfinite().all(dim=-1).numpy()
        columns = {column.name: [nan] * rows for column in self.method.records}
        lengths = deltas.double().norm(dim=-1)
        columns["drift"] = torch.where(torch.from_numpy(usable), lengths, nan).tolist()
        # The server rule reads every row's upload shape, so those that do not count stay finite.
        deltas = torch.where(torch.from_numpy(finite)[:, None], deltas, 0.0)
        for name, is_finite in zip(contents, finite, strict=True):
            if not is_finite:
                self._reject(round, name, "it is not finite")
        deltas, uploads = self._bounded(list(contents), deltas, uploads, finite & usable)
        # One vehicle's NaN must not end a run; that all of several send it may.
        diverged = rows > 1 and not finite[usable].any() and usable.sum() > 1
        calls = [called[name] for name in contents]
        population = [members.windows(int(k)) for k in members.population]
        sizes = [members.windows(call.vehicle) for call in calls]
        return Work(
            calls,
            deltas.to(self.device),
            capped(sizes, population, self.config.deploy.weight_cap),
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
        """Return updates no longer than the limit; a longer one is shortened."""
        bound = self.config.deploy.norm_bound
        deltas, long = shortened(deltas, usable, bound)
        for name, table in uploads.items():
            if table.dim() == 2 and table.is_floating_point():
                uploads[name], longer = shortened(table, usable, bound)
                long = long | longer
        for row in np.flatnonzero(long):
            reason = f"it is over {bound:g} times as long as usual, and was shortened"
            self.roster.events.uncounted(names[row], reason)
        return deltas, uploads

    def asked_to_evaluate(self, names: list[str]) -> list[str]:
        """Return those of `names` that are asked to evaluate a model."""
        return names

    def evaluate(self, weights: Tensor, events: Rows, present: Present) -> ModelEvaluation:
        """Return error sums of the model [1, D]; vehicles that do not reply have no test errors.

        Their validation errors are their last ones, so that the best of two rounds is chosen
        between errors on the same vehicles: without them a round would look better because a
        vehicle that is hard to predict was away. Where a vehicle replies for the first time, the
        model cannot be compared with those that it never evaluated.
        """
        progress = Progress.unpacked(events)
        names = [present.members.name(k) for k in present.members.evaluated]
        called = self.asked_to_evaluate(names)
        request = self.evaluation_request(weights, progress)
        seconds = self.config.deploy.evaluation_seconds
        enough = ceil(len(called) / (1 + self.config.deploy.over_selection))
        requests = dict.fromkeys(called, request)
        answers = self.roster.ask(ReplyForm("evaluate"), requests, seconds, enough=enough)
        errors = self._vehicle_errors(answers)
        latest = {name: validation for name, (validation, _) in errors.items()}
        validation = {**progress.validation, **latest}
        test = {name: test for name, (_, test) in errors.items()}
        if len(test) < len(names):
            log.info("%d of %d vehicles evaluated the model", len(test), len(names))
        evaluation = Evaluation(
            [validation.get(name, ErrorSums()) for name in names],
            [test.get(name, ErrorSums()) for name in names],
        )
        after = replace(progress, validation=validation)
        comparable = not (progress.validation and latest.keys() - progress.validation.keys())
        return ModelEvaluation([evaluation], after.packed(), comparable)

    def _vehicle_errors(
        self, answers: Mapping[str, Reply]
    ) -> dict[str, tuple[ErrorSums, ErrorSums]]:
        """Return validation and test errors by vehicle, of those whose errors can be true.

        They count for no more than those of some vehicles together: one that enrols with millions
        of windows would be all that a report shows.
        """
        _, *heaviest = self.roster.heaviest()
        errors = {}
        for name, reply in answers.items():
            try:
                sums = enrolled_errors(self.roster.members[name], reply.usable())
            except DataError as error:
                log.warning("evaluation of %s rejected: %s", name, error)
                self.roster.events.uncounted(name, f"its errors of a model: {error}")
                continue
            validation, test = (
                scaled_down(split_errors, most)
                for split_errors, most in zip(sums, heaviest, strict=True)
            )
            errors[name] = validation, test
        return errors


def accumulation_fault(arrays: Mapping[str, NDArray[Any]], steps: int) -> str:
    """Return why FedNova's ‖a_k‖₁ of H_k = `steps` cannot be divided by; empty if it can.

    Momentum repeats gradients most, with ρ → 1: ‖a_k‖₁ → 1 + 2 + ... + H_k.

    >>> accumulation_fault({"accumulation": np.array(48.24)}, 11)
    ''
    >>> accumulation_fault({"accumulation": np.array(0.0)}, 11)
    'its accumulation is 0, and 11 steps make 0.01 to 66'
    """
    if "accumulation" not in arrays:
        return ""
    accumulation = float(arrays["accumulation"])
    most = steps * (steps + 1) / 2
    # The closed forms are float64 and lose a few digits where ρ is nearly 1.
    if LEAST_ACCUMULATION <= accumulation <= most * (1 + 1e-6):
        return ""
    least = LEAST_ACCUMULATION
    return f"its accumulation is {accumulation:g}, and {steps} steps make {least} to {most:g}"
