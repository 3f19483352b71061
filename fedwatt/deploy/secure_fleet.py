"""A real fleet whose replies are added up in secret, as the loop sees it.

A secure sum (`secure_exchange`) takes the place of single replies. What comes of it is given to the
method as the replies of the survivors, all equal to their mean.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from fedwatt.deploy.clear_sums import sums_of
from fedwatt.deploy.kept_sums import SecretSum
from fedwatt.deploy.known import Known
from fedwatt.deploy.limits_of_replies import refuse_impossible_weight, refuse_long_mean
from fedwatt.deploy.masked_errors import MaskedErrors
from fedwatt.deploy.parts import NoSum
from fedwatt.deploy.quorum import Unanswered
from fedwatt.deploy.road_fleet import RoadFleet
from fedwatt.deploy.vehicle_errors import VehicleErrors
from fedwatt.engine.call import Call
from fedwatt.errors import FedwattError, RunError, SettingError
from fedwatt.federation import State
from fedwatt.federation.port import Judgement, Present
from fedwatt.federation.terms import Terms
from fedwatt.federation.work import Together, Work, no_work
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.privacy.check_words import CHECK, Made
from fedwatt.privacy.drawing import draws_on_board
from fedwatt.privacy.fixed_point import CLIPPED
from fedwatt.privacy.secure.compose import means, reply_layout, secure_fault

log = logging.getLogger("fedwatt.deploy")


class SecureFleet(RoadFleet):
    """Answers for a real fleet of which no single reply is seen."""

    fewest: ClassVar[int] = 2
    judged_by: ClassVar[type[VehicleErrors]] = MaskedErrors

    def check(self, method: Method) -> None:
        """Refuse what cannot work in rounds of these vehicles, and what secure sums cannot do."""
        super().check(method)
        if fault := secure_fault(method):
            raise SettingError(f"Method '{method.name}' with secure aggregation: {fault}")
        if self.config.deploy.diagnostics:
            raise SettingError(
                "deploy.diagnostics asks every vehicle for its roughness, and secure.enabled keeps "
                "single vehicles secret. Switch one of them off."
            )

    def replies(
        self, state: State, present: Present, called: Mapping[str, Call], wanted: int
    ) -> Work | Unanswered:
        """The sum over the vehicles called; who drops out of it has not replied."""
        try:
            if called and not present.members.population_windows > 0:
                raise RunError("no model was judged yet, so the size of the fleet is not known.")
            if called:
                found = self._sum(state, present, list(called), wanted)
                return self._means(found, called, len(present.members.population))
        except FedwattError as error:
            if isinstance(error, NoSum) and not error.sent and not self.private:
                return Unanswered(frozenset(called) - error.lost)
            log.warning("round %d makes no model: %s", state.round + 1, error)
        return no_work(state.weights)

    @property
    def calling_terms(self) -> Terms:
        """In a private round that samples vehicles, everybody is called and draws on board.

        Over vehicles that the server drew, a sum would fail where one less is too few, and so leave
        out the replies of others; and a server that says who is drawn could choose a single one.
        """
        if not draws_on_board(self.method, self.terms.training):
            return self.terms
        training = replace(self.terms.training, participation=1.0, sampling="fixed")
        return replace(self.terms, training=training)

    def _sum(self, state: State, present: Present, names: list[str], wanted: int) -> SecretSum:
        """One exchange with the vehicles `names`; RunError if too few see it through."""
        what, model = f"round {state.round + 1}", self.method.adapted(self.model)
        room = self.config.deploy.room(len(names))
        layout = reply_layout(self.method, model, self.config.secure, vehicles=room)
        exchange = sums_of(self.roster, self.run, self.config.secure, self.common, enough=wanted)
        seconds = self.config.deploy.round_seconds
        training = self.training_questions(state, present)
        found = exchange.total(what, names, layout, "secure-train", training, seconds)
        refuse_impossible_weight(layout, found.sums, len(found.survivors))
        if found.sums[CLIPPED][0]:
            log.warning(
                "%s: %d values of all vehicles together were clipped; raise secure.delta_limit or "
                "secure.upload_limit",
                what,
                found.sums[CLIPPED][0],
            )
        return found

    def present(self, state: State | None) -> Present:
        """Who is connected now; how many windows they have on average is known from a sum."""
        present = super().present(state)
        known = Known() if state is None else Known.unpacked(state.events)
        return replace(present, members=replace(present.members, mean_windows=known.mean_windows))

    def judge(self, weights: Tensor, events: Rows, present: Present) -> Judgement:
        """Error sums of the model [1, D] over the fleet.

        Who is in the sum differs where vehicles drop out, and nobody can stand in for them. Where a
        vehicle is in it for the first time, the model is not compared with earlier ones.
        """
        known, members = Known.unpacked(events), present.members
        groups: dict[bool, list[str]] = {False: [], True: []}
        for vehicle in members.evaluated:
            groups[members.held_out(vehicle)].append(members.name(vehicle))
        assert isinstance(self.errors, MaskedErrors)
        question = self.judging_question(weights, known)
        found = self.errors.judged(question, groups[False], groups[True])
        if found is None:
            return Judgement([None], events)
        errors, judges = found
        if len(judges) < len(groups[False]):
            log.info("the model was judged by %d of %d vehicles", len(judges), len(groups[False]))
        comparable = not (known.judges and set(judges) - known.judges)
        after = replace(known, judges=known.judges | set(judges), mean_windows=errors.mean_windows)
        return Judgement([errors], after.packed(), comparable)

    def _means(self, found: SecretSum, names: Mapping[str, Call], population: int) -> Work:
        """The survivors' mean in the place of each of their replies; each weighs Σ w_k / R."""
        method = self.method
        counted = [names[name] for name in found.survivors]
        others = [names[name] for name in found.rejected if name not in found.survivors]
        delta, weight, uploads = means(method, method.adapted(self.model), found.sums)
        refuse_long_mean(delta, self.config.secure.norm_limit)
        expected = self.terms.training.participation * population
        divisor = method.server.divisor(weight, expected)
        calls = [*counted, *others]
        usable = np.arange(len(calls)) < len(counted)

        delta = delta.to(self.device)
        uploads = {name: values.to(self.device) for name, values in uploads.items()}
        length, each = float(delta.double().norm()), weight / len(counted)
        return Work(
            calls,
            delta.new_zeros((len(calls), 0)),
            np.full(len(calls), each),
            np.ones(len(calls), dtype=bool),
            usable,
            {},
            {},
            {},
            events=Known(made=_made(found, divisor)).packed(),
            noised=self.private,
            together={calls[0].run: Together(delta, each, uploads, length)},
        )


def _made(found: SecretSum, divisor: float) -> Made:
    """What vehicles are told of the model that a sum, divided by `divisor`, makes."""
    weight, words = float(found.sums["weight"][0]), tuple(found.sums[CHECK].tolist())
    return Made(found.exchange, weight, divisor, len(found.survivors), words, found.parts)
