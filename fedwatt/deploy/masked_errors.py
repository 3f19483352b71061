"""Errors of a model under masks: the fleet's, of which no single vehicle's are known.

Vehicles that train and vehicles that are held out are in sums of their own. Fewer than a sum needs
have no figures.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fedwatt.deploy.clear_sums import sums_of
from fedwatt.deploy.error_vectors import (
    judged_errors,
    judging_layout,
    strata_errors,
    strata_layout,
)
from fedwatt.deploy.kept_sums import SecretSum
from fedwatt.deploy.messages import Content
from fedwatt.deploy.parts import NoSum
from fedwatt.deploy.purpose import Purpose
from fedwatt.deploy.vehicle_errors import VehicleErrors
from fedwatt.errors import DataError
from fedwatt.federation.records import FleetErrors, Row, error_columns

log = logging.getLogger("fedwatt.deploy")

GROUPS = {"all vehicles": False, "held-out vehicles": True}
"""Names of the rows that stand for a fleet, and whether they are of vehicles that never train."""


@dataclass(frozen=True, eq=False)
class MaskedErrors(VehicleErrors):
    """Asks about models by secure sums."""

    latest: dict[str, tuple[FleetErrors, tuple[str, ...]]] = field(default_factory=dict)
    """What was said of the last model, by its digest: a round may make no new one."""

    def judged(
        self, question: Content, trained: Sequence[str], held_out: Sequence[str]
    ) -> tuple[FleetErrors, tuple[str, ...]] | None:
        """What the vehicles say of a model, and who did; None: there is no sum."""
        model = Purpose.of("secure-evaluate", question).model
        if model in self.latest:
            return self.latest[model]
        found = self._sum("evaluate", trained, question)
        if found is None:
            return None
        try:
            errors = judged_errors(found.sums, len(found.survivors))
            others = self._sum("evaluate", held_out, question)
            if others is not None:
                away = judged_errors(others.sums, len(others.survivors))
                errors = replace(errors, held_out=away.test.rmse)
        except DataError as error:
            log.warning("the evaluation of the fleet is rejected: %s", error)
            return None
        self.latest.clear()
        self.latest[model] = errors, found.survivors
        return self.latest[model]

    def _asked(self, kind: str, question: Content) -> list[Row]:
        clients = self.roster.fleet(self.config.data).clients
        rows: list[Row] = []
        for name, held_out in GROUPS.items():
            names = [client.name for client in clients if client.held_out == held_out]
            found = self._sum(kind, names, question)
            if found is None:
                continue
            about = {"seed": self.config.seeds[0], "vehicle": name, "held_out": held_out}
            try:
                errors = strata_errors(found.sums)
            except DataError as error:
                log.warning("errors by stratum of %s are rejected: %s", name, error)
                continue
            rows += [{**about, "stratum": s, **error_columns(e)} for s, e in errors.items()]
        return rows

    def _sum(self, kind: str, names: Sequence[str], question: Content) -> SecretSum | None:
        """Sum over those of `names` that are there; None, with the reason in the log, if none."""
        there = [name for name in names if self.roster.there(name)]
        if not there:
            return None
        exchange = sums_of(self.roster, self.run, self.config.secure, self.common)
        room, masked = self.config.deploy.room(len(there)), f"secure-{kind}"
        layout = judging_layout(room) if kind == "evaluate" else strata_layout(room)
        seconds = self.seconds(kind)
        try:
            return exchange.total(masked, there, layout, masked, lambda name: question, seconds)
        except NoSum as error:
            log.warning("%s: %s", masked, error)
            return None
