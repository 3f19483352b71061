"""Test errors of the final and the personalised models, asked of connected vehicles."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy.server.members import Roster
from fedwatt.deploy.server.requests import Reply
from fedwatt.deploy.server.run_state import RunState, SumTotal
from fedwatt.deploy.server.sums import NoSum, SecureSums
from fedwatt.deploy.vehicle.errors import EVALUATION, FINAL, error_rows
from fedwatt.deploy.vehicle.messages import BROADCAST, ReplyForm
from fedwatt.deploy.wire import Content, Value
from fedwatt.errors import DataError
from fedwatt.federation.records import Row, error_columns
from fedwatt.metrics import ErrorSums, micro
from fedwatt.metrics.sampling import rmse_margin
from fedwatt.privacy.fixed_point import Layout
from fedwatt.runs.config import RunConfig

log = logging.getLogger("fedwatt.deploy")

GROUPS: Final = {"all vehicles": False, "held-out vehicles": True}
"""Rows that stand for a fleet, and whether they are of vehicles that never train."""


@dataclass(frozen=True, eq=False)
class FinalErrors:
    """Errors by vehicle and stratum; each model is asked about once."""

    roster: Roster
    run: RunState
    config: RunConfig
    common: Mapping[str, Value]
    rows: dict[str, list[Row]] = field(default_factory=dict)
    """Replies so far, by the digest of the request."""

    def of_model(self, weights: Tensor) -> list[Row]:
        """Return errors of the model [1, D]."""
        return self._rows("final", weights)

    def personalised(
        self, weights: Tensor, round: int, sent: Mapping[str, NDArray[Any]]
    ) -> list[Row]:
        """Return errors of the models that vehicles personalise from the model [1, D]."""
        arrays = {BROADCAST + name: array for name, array in sent.items()}
        return self._rows("personalise", weights, arrays, {"round": round})

    def _rows(
        self,
        kind: str,
        weights: Tensor,
        more: Mapping[str, NDArray[Any]] | None = None,
        values: Mapping[str, Value] | None = None,
    ) -> list[Row]:
        arrays = {"weights": weights[0].cpu().numpy(), **(more or {})}
        digests = (sha256(array.tobytes()).hexdigest() for array in arrays.values())
        key = " ".join((kind, *digests))
        if key not in self.rows:
            number = {"round": sum(name.startswith(kind) for name in self.rows)}
            request = Content({"kind": kind, **self.common, **number, **(values or {})}, arrays)
            self.rows[key] = self._asked(kind, request)
        return self.rows[key]

    def seconds(self, kind: str) -> float:
        """Return how long a reply may take."""
        deploy = self.config.deploy
        return deploy.round_seconds if kind == "personalise" else deploy.evaluation_seconds

    def _asked(self, kind: str, request: Content) -> list[Row]:
        clients = {client.name: client for client in self.roster.fleet(self.config.data).clients}
        requests = dict.fromkeys(clients, request)
        replies = self.roster.ask(ReplyForm(kind), requests, self.seconds(kind))
        rows: list[Row] = []
        for name, client in clients.items():
            about = {"seed": self.config.seeds[0], "vehicle": name, "held_out": client.held_out}
            try:
                if name not in replies:
                    raise DataError("it did not reply")
                errors = self.strata(name, replies[name])
                rows += [{**about, "stratum": s, **error_columns(e)} for s, e in errors.items()]
            except DataError as error:
                log.warning("no errors of %s by stratum: %s", name, error)
        return rows

    def strata(self, name: str, reply: Reply) -> dict[str, ErrorSums]:
        """Return error sums by stratum; DataError if they cannot be used."""
        content = reply.usable()
        strata = content.values["strata"]
        sums = content.arrays["sums"]
        assert isinstance(strata, list)
        if len(strata) != len(sums) or len(set(strata)) != len(strata):
            raise DataError(f"{len(sums)} error sums do not fit {len(set(strata))} strata")
        found = {str(s): ErrorSums.from_array(own) for s, own in zip(strata, sums, strict=True)}
        enrolled = self.roster.members[name].windows[2]
        if found.get("all", ErrorSums()).windows != enrolled or any(
            own.windows > enrolled for own in found.values()
        ):
            raise DataError(f"they are not of the {enrolled} windows that it enrolled with")
        return found


@dataclass(frozen=True, eq=False)
class SummedErrors(FinalErrors):
    """Errors of the fleet by secure aggregation, of which no single vehicle's are known.

    Vehicles that train and held-out vehicles are in separate sums.
    """

    def _asked(self, kind: str, request: Content) -> list[Row]:
        clients = self.roster.fleet(self.config.data).clients
        rows: list[Row] = []
        for name, held_out in GROUPS.items():
            names = [client.name for client in clients if client.held_out == held_out]
            total = self.sum(kind, names, request)
            if total is None:
                continue
            about = {"seed": self.config.seeds[0], "vehicle": name, "held_out": held_out}
            try:
                (errors,) = error_rows(total.sums, 1)
            except DataError as error:
                log.warning("the errors of %s are rejected: %s", name, error)
                continue
            rows.append({**about, "stratum": "all", **error_columns(errors)})
        return rows

    def sum(self, kind: str, names: Sequence[str], request: Content) -> SumTotal | None:
        """Return the sum over those of `names` that are there; None, with a log line, if none."""
        there = [name for name in names if self.roster.there(name)]
        if not there:
            return None
        sums = SecureSums(self.roster, self.run)
        layout = Layout(EVALUATION if kind == "evaluate" else FINAL, vehicles=len(there))
        try:
            return sums.total(kind, there, layout, lambda name: request, self.seconds(kind))
        except NoSum as error:
            log.warning("%s: %s", kind, error)
            return None


def possible_sums(row: NDArray[np.float64], enrolled: int) -> ErrorSums:
    """Return error sums of so many windows; DataError if they cannot be true."""
    sums = ErrorSums.from_array(row)
    if sums.windows != enrolled:
        raise DataError(f"they are of {sums.windows} windows, and it enrolled with {enrolled}")
    return sums


def log_margin(test: Sequence[ErrorSums], vehicles: int) -> None:
    """Log the error with its interval where a sample of the vehicles evaluated the model."""
    if len(test) < vehicles:
        log.info(
            "test RMSE %.2f ± %.2f Wh (95 %%) by a sample of %d of %d vehicles",
            micro(test).rmse,
            rmse_margin(test, vehicles),
            len(test),
            vehicles,
        )
