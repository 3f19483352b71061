"""Connected vehicles whose updates and errors are added by secure aggregation.

A method is given the sum's mean in place of the survivors' updates.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from fedwatt.deploy import log
from fedwatt.deploy.server.backend import DeployedBackend, Progress, Unanswered
from fedwatt.deploy.server.limits import refuse_impossible_weight, refuse_long_mean
from fedwatt.deploy.server.run_state import SumTotal
from fedwatt.deploy.server.sums import FinalErrors, NoSum, SecureSums, SummedErrors
from fedwatt.errors import DataError, FedwattError, RunError, SettingError
from fedwatt.federation import State
from fedwatt.federation.evaluate import fleet_errors
from fedwatt.federation.loop import ModelEvaluation
from fedwatt.federation.participation import Call, Present, Terms
from fedwatt.federation.work import MeanUpdate, Work, no_work
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.metrics.sums import CLIPPED
from fedwatt.privacy.secure.compose import reply_layout, secure_fault, vehicles_draw


class SecureBackend(DeployedBackend):
    """Connected vehicles of which no single update is seen."""

    errors_by: ClassVar[type[FinalErrors]] = SummedErrors

    def check(self, method: Method) -> None:
        """Refuse what cannot work in rounds of these vehicles, or with sums."""
        super().check(method)
        if fault := secure_fault(method):
            raise SettingError(f"Method '{method.name}' with secure aggregation: {fault}")

    @property
    def calling_terms(self) -> Terms:
        """Return terms that call everybody in a private round: vehicles draw for themselves.

        Otherwise a sum would fail where one vehicle less is too few, and a server could choose a
        single vehicle.
        """
        if not vehicles_draw(self.method, self.terms.training):
            return self.terms
        training = replace(self.terms.training, participation=1.0, sampling="fixed")
        return replace(self.terms, training=training)

    def present(self, state: State | None) -> Present:
        """Return who is connected, with the mean number of windows from the last sum."""
        present = super().present(state)
        progress = Progress() if state is None else Progress.unpacked(state.events)
        members = replace(present.members, mean_windows=progress.mean_windows)
        return replace(present, members=members)

    def replies(
        self, state: State, present: Present, called: Mapping[str, Call], enough_replies: int
    ) -> Work | Unanswered:
        """Return the sum over the vehicles called; those that drop out have not replied."""
        if not called:
            return no_work(state.weights)
        try:
            return self._mean(self._sum(state, present, list(called), enough_replies), called)
        except FedwattError as error:
            if isinstance(error, NoSum) and not error.sent and not self.private:
                return Unanswered(frozenset(called) - error.lost)
            log.warning("round %d makes no model: %s", state.round + 1, error)
        return no_work(state.weights)

    def _sum(
        self, state: State, present: Present, names: list[str], enough_replies: int
    ) -> SumTotal:
        """Return one sum over the vehicles `names`; NoSum if too few see it through."""
        if not present.members.population_windows > 0:
            raise RunError("no model was evaluated yet, so the fleet's size is unknown.")
        name = f"round {state.round + 1}"
        model = self.method.adapted(self.model)
        layout = reply_layout(self.method, model, self.config.secure, vehicles=len(names))
        sums = SecureSums(self.roster, self.run, enough=enough_replies)
        request = self.training_requests(state, present)
        total = sums.total(name, names, layout, request, self.config.deploy.round_seconds)
        refuse_impossible_weight(layout, total.sums, len(total.survivors))
        if clipped := total.sums[CLIPPED][0]:
            log.warning(
                "%s: %d values of all vehicles together were clipped; raise secure.delta_limit or "
                "secure.upload_limit",
                name,
                clipped,
            )
        return total

    def _mean(self, total: SumTotal, called: Mapping[str, Call]) -> Work:
        """Return the survivors' mean in place of their updates; each weighs Σ w_k / R."""
        method = self.method
        counted = [called[name] for name in total.survivors]
        left_out = [called[name] for name in total.rejected if name not in total.survivors]
        delta, weight, uploads = method.mean_of_sums(method.adapted(self.model), total.sums)
        refuse_long_mean(delta, self.config.secure.norm_limit)
        calls = [*counted, *left_out]
        delta = delta.to(self.device)
        uploads = {name: values.to(self.device) for name, values in uploads.items()}
        length = float(delta.double().norm())
        each = weight / len(counted)
        return Work(
            calls,
            delta.new_zeros((len(calls), 0)),
            np.full(len(calls), each),
            np.ones(len(calls), dtype=bool),
            np.arange(len(calls)) < len(counted),
            {},
            {},
            {},
            noised=self.private,
            together={calls[0].run: MeanUpdate(delta, each, uploads, length)},
        )

    def evaluate(self, weights: Tensor, events: Rows, present: Present) -> ModelEvaluation:
        """Return error sums of the model [1, D] over the fleet.

        Where a vehicle is in the sum for the first time, the model is not compared with earlier
        ones.
        """
        assert isinstance(self.errors, SummedErrors)
        progress = Progress.unpacked(events)
        members = present.members
        groups: dict[bool, list[str]] = {False: [], True: []}
        for vehicle in members.evaluated:
            groups[members.held_out(vehicle)].append(members.name(vehicle))
        request = self.evaluation_request(weights, progress)
        total = self.errors.sum("evaluate", groups[False], request)
        if total is None:
            return ModelEvaluation([None], events)
        try:
            errors = fleet_errors(total.sums, len(total.survivors))
            held_out_total = self.errors.sum("evaluate", groups[True], request)
            if held_out_total is not None:
                held_out = fleet_errors(held_out_total.sums, len(held_out_total.survivors))
                errors = replace(errors, held_out=held_out.test.rmse)
        except DataError as error:
            log.warning("the evaluation of the fleet is rejected: %s", error)
            return ModelEvaluation([None], events)
        evaluators = frozenset(total.survivors)
        if len(evaluators) < len(groups[False]):
            log.info("%d of %d vehicles evaluated", len(evaluators), len(groups[False]))
        comparable = not (progress.evaluators and evaluators - progress.evaluators)
        after = replace(
            progress,
            evaluators=progress.evaluators | evaluators,
            mean_windows=errors.mean_windows,
        )
        return ModelEvaluation([errors], after.packed(), comparable)
