"""The server's side of rounds whose replies are added up in secret.

A secure sum (`secure_exchange`) takes the place of single replies. What comes of it is given to the
method as the replies of the survivors, all equal to their mean.
"""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from fedwatt.deploy.messages import Content
from fedwatt.deploy.remote import RemoteFederation
from fedwatt.deploy.secure_exchange import SecretSum, SecureExchange
from fedwatt.engine.call import Call
from fedwatt.errors import FedwattError, RunError, SettingError
from fedwatt.federation import State
from fedwatt.federation.work import Work, enough, no_work
from fedwatt.methods import Method
from fedwatt.metrics import Stopwatch
from fedwatt.privacy.fixed_point import CLIPPED, FloatArray
from fedwatt.privacy.secure import Layout, means, reply_layout, secure_fault

log = logging.getLogger("fedwatt.deploy")


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
        model, what = self.model_for(method), f"round {state.round + 1}"

        def layout(vehicles: int) -> Layout:
            return reply_layout(method, model, self.secure, vehicles=vehicles)

        def training(name: str) -> Content:
            return self._training_question(method, state, name)

        exchange = SecureExchange(self.roster, self.run_state, self.secure, self.common)
        found = exchange.total(
            what, names, layout, "secure-train", training, self.terms.round_seconds
        )
        refuse_impossible_weight(layout(len(names)), found.sums, len(found.survivors))
        if found.sums[CLIPPED][0]:
            log.warning(
                "%s: %d values of all vehicles together were clipped; raise secure.delta_limit or "
                "secure.upload_limit",
                what,
                found.sums[CLIPPED][0],
            )
        return found

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
            {},
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
