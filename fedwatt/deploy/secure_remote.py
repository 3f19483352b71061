"""The server's side of rounds whose replies are added up in secret.

Four questions take the place of one: keys, shares, training, and the shares that unmask the sum.
What comes of it is given to the method as the replies of the survivors, all equal to their mean.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from fedwatt.deploy.board import sizes_of
from fedwatt.deploy.messages import DIAGNOSTICS, Content
from fedwatt.deploy.remote import RemoteFederation
from fedwatt.deploy.secure_board import to_values
from fedwatt.errors import DataError, FedwattError, RunError, SettingError
from fedwatt.federation import State
from fedwatt.federation.work import Call, Work, enough, no_work
from fedwatt.methods import Method
from fedwatt.metrics import Stopwatch
from fedwatt.privacy.fixed_point import CLIPPED, FloatArray
from fedwatt.privacy.secure import (
    Advert,
    Layout,
    Masked,
    Revealed,
    Shares,
    from_plain,
    means,
    reply_layout,
    secure_fault,
    server,
)

log = logging.getLogger("fedwatt.deploy")

Message = TypeVar("Message")


@dataclass(frozen=True)
class SecretSum:
    """What a round brought: sums over its survivors, and whose messages could not be used."""

    sums: Mapping[str, FloatArray]
    survivors: tuple[str, ...]
    rejected: Mapping[str, str]


class SecureFederation(RemoteFederation):
    """A federation on a real fleet in which single replies stay secret."""

    weight_each = 0.0
    """Σ w_k / R of the round that is being taken in."""

    def check(self, method: Method) -> None:
        """Refuse also what secure sums cannot do."""
        super().check(method)
        fault = secure_fault(method)
        if fault:
            raise SettingError(f"Method '{method.name}' with secure aggregation: {fault}")
        if self.terms.diagnostics:
            raise SettingError(
                "deploy.diagnostics asks every vehicle for its roughness, and secure.enabled keeps "
                "single vehicles secret. Switch one of them off."
            )

    def _local_work(
        self, method: Method, state: State, live: Sequence[int], watch: Stopwatch
    ) -> tuple[State, list[Call], Work]:
        """Ask the participants for their sum; who drops out of it has not replied."""
        calls = [call for run in live for call in self._calls(state, run)]
        names = {self.fleet.clients[call.vehicle].name: call for call in calls if call.steps}
        work = no_work(state.weights)
        try:
            if names:
                found = self._sum(method, state, list(names))
                work = self._mean_work(method, found, names)
        except FedwattError as error:
            log.warning("round %d makes no model: %s", state.round + 1, error)
        return state, calls, enough(work, self.terms.minimum_replies)

    def _weight(self, vehicle: int) -> float:
        return self.weight_each

    def _sum(self, method: Method, state: State, names: list[str]) -> SecretSum:
        """One exchange with the vehicles `names`; RunError if too few see it through."""
        settings, short = self.secure, self.secure.stage_seconds
        model = self.model_for(method)
        if len(names) < 2:
            raise RunError("a secure sum needs two vehicles or more.")
        layout = reply_layout(method, model, settings, vehicles=len(names))
        terms = settings.terms(
            run=str(self.common["run"]),
            number=self.run_state.next_exchange(time.time_ns() // 1000),
            called=len(names),
            length=layout.length,
        )
        rejected: dict[str, str] = {}

        def ask(
            kind: str,
            reply: type[Message],
            asked: Iterable[str],
            question: Callable[[str], Content],
            seconds: float = short,
        ) -> dict[str, Message]:
            nodes = self.roster.nodes(dict.fromkeys(asked))
            questions = {node: question(name) for node, name in nodes.items()}
            answers = self.roster.exchange.ask(
                kind, questions, seconds, sizes=sizes_of(self, method)
            )
            good = {}
            for node, answer in answers.items():
                try:
                    if answer.content is None:
                        raise DataError(answer.trouble)
                    good[nodes[node]] = from_plain(reply, answer.content.values)
                except DataError as error:
                    rejected[nodes[node]] = str(error)
            return good

        def same(message: Any) -> Callable[[str], Content]:
            content = Content(self.common | to_values(message))
            return lambda name: content

        adverts = ask("secure-keys", Advert, names, same(terms))
        keys, left_out = server.make_roster(terms, adverts)
        rejected |= left_out
        shares = ask("secure-shares", Shares, keys.vehicles, same(keys))
        routed, inboxes, left_out = server.route(terms, keys, shares)
        rejected |= left_out

        def training(name: str) -> Content:
            plain = self._training_question(method, state, name)
            return Content({**plain.values, **to_values(inboxes[name])}, plain.arrays)

        masked = ask("secure-train", Masked, inboxes, training, self.terms.round_seconds)
        summed, survivors, left_out = server.collect(routed, masked)
        rejected |= left_out
        told = ask("secure-reveal", Revealed, survivors.vehicles, same(survivors))
        total, left_out = server.unmask(summed, told)
        for name, reason in (rejected | left_out).items():
            log.warning("round %d: a message of %s rejected: %s", state.round + 1, name, reason)
        sums = layout.decode(total)
        refuse_impossible_weight(layout, sums, len(survivors.vehicles))
        if sums[CLIPPED][0]:
            log.warning(
                "round %d: %d values of all vehicles together were clipped; raise "
                "secure.delta_limit or secure.upload_limit",
                state.round + 1,
                sums[CLIPPED][0],
            )
        return SecretSum(sums, survivors.vehicles, rejected)

    def _mean_work(self, method: Method, found: SecretSum, names: Mapping[str, Call]) -> Work:
        """The survivors' mean in the place of each of their replies."""
        counted = [names[name] for name in found.survivors]
        others = [names[name] for name in found.rejected if name not in found.survivors]
        delta, weight, uploads = means(method, self.model_for(method), found.sums)
        self.weight_each = weight / len(counted)
        calls = [*counted, *others]
        usable = np.arange(len(calls)) < len(counted)

        def rows(mean: Tensor) -> Tensor:
            return mean.expand(len(calls), *mean.shape).to(self.device)

        return Work(
            calls,
            rows(delta),
            np.ones(len(calls), dtype=bool),
            usable,
            {},
            {name: rows(values) for name, values in uploads.items()},
            {name: [nan] * len(calls) for name in (*DIAGNOSTICS, "drift")},
        )


def refuse_impossible_weight(
    layout: Layout, sums: Mapping[str, FloatArray], survivors: int
) -> None:
    """Raise unless R ≤ Σ w_k ≤ R · limit, for w_k of at least one window each.

    One vehicle can still bend a sum that nobody can look into, but not end the run with it.
    """
    (weight,) = sums["weight"]
    heaviest = next(field.limit for field in layout.fields if field.name == "weight")
    rounding = survivors * layout.steps["weight"] / 2
    if not survivors - rounding <= weight <= survivors * heaviest + rounding:
        raise RunError(
            f"{survivors} vehicles add up to a weight of {weight:g}, and {survivors} to "
            f"{survivors * heaviest:g} is possible. One of them is at fault."
        )
