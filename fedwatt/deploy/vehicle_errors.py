"""Test errors of a model by vehicle and stratum, asked of the vehicles of a real fleet."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.deploy.exchange import Answer
from fedwatt.deploy.messages import Content, ReplyForm, Value
from fedwatt.deploy.questions import AFTER, SENT
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.state import RunState
from fedwatt.errors import DataError
from fedwatt.federation.records import Row, error_columns
from fedwatt.metrics import ErrorSums, micro
from fedwatt.metrics.sampling import rmse_margin
from fedwatt.runs.config import RunConfig
from fedwatt.runs.level import LEVEL

log = logging.getLogger("fedwatt.deploy")


@dataclass(frozen=True, eq=False)
class VehicleErrors:
    """Asks about models; about each one once, since the last is often the best one, too."""

    roster: Roster
    run: RunState
    config: RunConfig
    common: Mapping[str, Value]
    """What every question says: the run, its configuration and the method."""
    level: NDArray[Any] | None = None
    """The level model [D] that vehicles have beside this one, if any."""
    rows: dict[str, list[Row]] = field(default_factory=dict)
    """Answers so far, by the digest of what was asked."""

    def of_model(self, weights: Tensor) -> list[Row]:
        """Errors of the model [1, D], of the vehicles that answer."""
        return self._rows("strata", weights, None)

    def in_use(self, weights: Tensor) -> list[Row]:
        """Errors of what vehicles would predict: by the level model where that is the rule."""
        return self._rows("strata", weights, self.level)

    def personal(self, weights: Tensor, rounds: int, sent: Mapping[str, NDArray[Any]]) -> list[Row]:
        """Errors in use of the models that vehicles have of their own, made on board.

        They are made of the model [1, D], or were kept beside it for so many `rounds`; `sent` is
        what the server rule sends besides.
        """
        more = {SENT + name: array for name, array in sent.items()}
        return self._rows("personalise", weights, self.level, more, {AFTER: rounds})

    def _rows(
        self,
        kind: str,
        weights: Tensor,
        level: NDArray[Any] | None,
        more: Mapping[str, NDArray[Any]] | None = None,
        values: Mapping[str, Value] | None = None,
    ) -> list[Row]:
        arrays = {"weights": weights[0].cpu().numpy(), **(more or {})}
        if level is not None:
            arrays[LEVEL] = level
        parts = (sha256(array.tobytes()).hexdigest() for array in arrays.values())
        model = " ".join((kind, *parts))
        if model not in self.rows:
            self.rows[model] = self._asked(kind, Content({**self.common, **(values or {})}, arrays))
        return self.rows[model]

    def seconds(self, kind: str) -> float:
        """How long an answer may take: fine-tuning as long as a round, looking at a model less."""
        terms = self.config.deploy
        return terms.round_seconds if kind == "personalise" else terms.evaluation_seconds

    def _asked(self, kind: str, question: Content) -> list[Row]:
        names = {client.name: client for client in self.roster.fleet(self.config.data).clients}
        questions = dict.fromkeys(names, question)
        answers = self.roster.ask(ReplyForm(kind), questions, self.seconds(kind))
        rows: list[Row] = []
        for name, client in names.items():
            about = {"seed": self.config.seeds[0], "vehicle": name, "held_out": client.held_out}
            try:
                if name not in answers:
                    raise DataError("it did not answer")
                errors = self.strata(name, answers[name])
                rows += [{**about, "stratum": s, **error_columns(e)} for s, e in errors.items()]
            except DataError as error:
                log.warning("no errors of %s by stratum: %s", name, error)
        return rows

    def strata(self, name: str, answer: Answer) -> dict[str, ErrorSums]:
        """Error sums by stratum; DataError if they cannot be used."""
        content = answer.usable()
        strata, sums = content.values["strata"], content.arrays["sums"]
        assert isinstance(strata, list)
        if len(strata) != len(sums) or len(set(strata)) != len(strata):
            raise DataError(f"{len(sums)} error sums do not fit {len(set(strata))} strata")
        if not all(isinstance(stratum, str) for stratum in strata):
            raise DataError("a stratum has a name")
        found = {str(s): ErrorSums.from_array(own) for s, own in zip(strata, sums, strict=True)}
        enrolled = self.roster.members[name].windows[2]
        if found.get("all", ErrorSums()).windows != enrolled or any(
            own.windows > enrolled for own in found.values()
        ):
            raise DataError(f"they are not of the {enrolled} windows that it enrolled with")
        return found


def possible_sums(row: NDArray[np.float64], enrolled: int) -> ErrorSums:
    """Error sums of a vehicle that enrolled with so many windows; DataError if they lie."""
    sums = ErrorSums.from_array(row)
    if sums.windows != enrolled:
        raise DataError(f"they are of {sums.windows} windows, and it enrolled with {enrolled}")
    return sums


def tell_margin(test: Sequence[ErrorSums], vehicles: int) -> None:
    """Log the error of so many vehicles with its interval where a sample has judged the model."""
    if len(test) < vehicles:
        log.info(
            "test RMSE %.2f ± %.2f Wh (95 %%) by a sample of %d of %d vehicles",
            micro(test).rmse,
            rmse_margin(test, vehicles),
            len(test),
            vehicles,
        )
