"""Test errors of the final and the personalised models, asked of connected vehicles."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy.server.members import Member, Roster
from fedwatt.deploy.server.run_state import RunState, SumTotal
from fedwatt.deploy.server.sums import NoSum, SecureSums
from fedwatt.deploy.vehicle.messages import BROADCAST, ReplyForm
from fedwatt.deploy.wire import Content, Value
from fedwatt.errors import DataError
from fedwatt.federation.evaluate import EVALUATION, FINAL, error_sums
from fedwatt.federation.records import Row, error_columns
from fedwatt.metrics import ErrorSums
from fedwatt.metrics.sums import VectorLayout
from fedwatt.runs.config import RunConfig

log = logging.getLogger("fedwatt.deploy")

GROUPS: Final = {"all vehicles": False, "held-out vehicles": True}
"""Rows that stand for a fleet, and whether they are of vehicles that never train."""


@dataclass(frozen=True, eq=False)
class FinalErrors:
    """Test errors by vehicle; each model is asked about once."""

    roster: Roster
    run: RunState
    config: RunConfig
    common: Mapping[str, Value]
    rows: dict[str, list[Row]] = field(default_factory=dict)
    """Replies so far, by the digest of the request."""

    def of_model(self, weights: Tensor) -> list[Row]:
        """Return errors of the model [1, D]."""
        return self._rows("final", {"weights": weights[0].cpu().numpy()})

    def personalised(
        self, weights: Tensor, round: int, sent: Mapping[str, NDArray[Any]]
    ) -> list[Row]:
        """Return errors of the models that vehicles personalise from the model [1, D]."""
        arrays = {"weights": weights[0].cpu().numpy()}
        arrays |= {BROADCAST + name: array for name, array in sent.items()}
        return self._rows("personalise", arrays, {"round": round})

    def _rows(
        self,
        kind: str,
        arrays: Mapping[str, NDArray[Any]],
        values: Mapping[str, Value] | None = None,
    ) -> list[Row]:
        digests = (sha256(array.tobytes()).hexdigest() for array in arrays.values())
        key = " ".join((kind, *digests))
        if key not in self.rows:
            number = {"round": sum(name.startswith(kind) for name in self.rows)}
            request = Content({"kind": kind, **self.common, **number, **(values or {})}, arrays)
            self.rows[key] = self._ask_vehicles(kind, request)
        return self.rows[key]

    def _row(self, name: str, held_out: bool, errors: ErrorSums) -> Row:
        label = {"seed": self.config.seeds[0], "vehicle": name, "held_out": held_out}
        return {**label, "stratum": "all", **error_columns(errors)}

    def seconds(self, kind: str) -> float:
        """Return how long a reply may take."""
        deploy = self.config.deploy
        return deploy.round_seconds if kind == "personalise" else deploy.evaluation_seconds

    def _ask_vehicles(self, kind: str, request: Content) -> list[Row]:
        clients = {client.name: client for client in self.roster.fleet().clients}
        requests = dict.fromkeys(clients, request)
        replies = self.roster.ask(ReplyForm(kind), requests, self.seconds(kind))
        rows: list[Row] = []
        for name, client in clients.items():
            try:
                if name not in replies:
                    raise DataError("it did not reply")
                _, errors = enrolled_errors(self.roster.members[name], replies[name].usable())
            except DataError as error:
                log.warning("no errors of %s: %s", name, error)
                continue
            rows.append(self._row(name, client.held_out, errors))
        return rows


@dataclass(frozen=True, eq=False)
class SummedErrors(FinalErrors):
    """Errors of the fleet by secure aggregation, of which no single vehicle's are known.

    Vehicles that train and held-out vehicles are in separate sums.
    """

    def _ask_vehicles(self, kind: str, request: Content) -> list[Row]:
        clients = self.roster.fleet().clients
        rows: list[Row] = []
        for name, held_out in GROUPS.items():
            names = [client.name for client in clients if client.held_out == held_out]
            total = self.sum(kind, names, request)
            if total is None:
                continue
            try:
                (errors,) = error_sums(total.sums, 1)
            except DataError as error:
                log.warning("the errors of %s are rejected: %s", name, error)
                continue
            rows.append(self._row(name, held_out, errors))
        return rows

    def sum(self, kind: str, names: Sequence[str], request: Content) -> SumTotal | None:
        """Return the sum over the connected of `names`; None, with a log line, if there is none."""
        connected = [name for name in names if self.roster.is_ready(name)]
        if not connected:
            return None
        sums = SecureSums(self.roster, self.run)
        layout = VectorLayout(EVALUATION if kind == "evaluate" else FINAL, vehicles=len(connected))
        try:
            return sums.total(kind, connected, layout, lambda name: request, self.seconds(kind))
        except NoSum as error:
            log.warning("%s: %s", kind, error)
            return None


def enrolled_errors(member: Member, content: Content) -> tuple[ErrorSums, ErrorSums]:
    """Return a vehicle's validation and test errors; DataError unless of its enrolled windows.

    Replies about a final model have test errors only.
    """
    errors = []
    for split, enrolled in zip(("validation", "test"), member.windows[1:], strict=True):
        sums = ErrorSums()
        if split in content.arrays:
            sums = ErrorSums.from_array(content.arrays[split])
            if sums.windows != enrolled:
                raise DataError(f"they are of {sums.windows} windows, and it has {enrolled}")
        errors.append(sums)
    return errors[0], errors[1]
