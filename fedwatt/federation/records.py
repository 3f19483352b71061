"""Rows of a run's tables: one for each round and seed, one for each participant."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from statistics import fmean
from typing import Any, Final

from fedwatt.errors import SettingError, unknown
from fedwatt.metrics import (
    METRICS,
    ErrorSums,
    macro_mean,
    micro,
    weighted_mean,
)
from fedwatt.metrics.sampling import rmse_margin
from fedwatt.tables import EVALUATION, TRAINING, blank, declared

Row = dict[str, Any]

SHOWN: Final = 200
"""Vehicles whose errors a round says one by one, at most."""


@dataclass(frozen=True)
class Evaluation:
    """A global model's errors on every vehicle that is evaluated."""

    validation: Sequence[ErrorSums]
    test: Sequence[ErrorSums]
    of: int = 0
    """Vehicles that train, of which those evaluated are a random sample; 0: not known."""

    def columns(self, windows: Sequence[int], held_out: Sequence[bool]) -> Row:
        """Return a round's columns about error; `windows` is n_k of every vehicle.

        Vehicles that train count in the headline figures, held-out ones in `held_out_rmse` alone.
        """
        trained = [k for k, out in enumerate(held_out) if not out]
        test = [self.test[k] for k in trained]
        sizes = [windows[k] for k in trained]
        away = micro([self.test[k] for k, out in enumerate(held_out) if out])
        return _error_columns(
            micro([self.validation[k] for k in trained]),
            micro(test),
            macro=macro_mean([sums.rmse for sums in test]),
            weighted=weighted_mean([sums.rmse for sums in test], sizes),
            held_out=away.rmse,
            margin=rmse_margin(test, self.of) if self.of else nan,
        )


@dataclass(frozen=True)
class FleetErrors:
    """A global model's errors on a whole fleet, of which no single vehicle's are known."""

    validation: ErrorSums
    test: ErrorSums
    vehicles: int
    """In these sums."""
    mean_windows: float
    """Mean n_k of them."""
    macro: float
    """Mean of their test RMSE."""
    weighted: float
    """The same, weighted by n_k."""
    held_out: float = nan
    """Test RMSE of vehicles that never train."""

    def columns(self, windows: Sequence[int], held_out: Sequence[bool]) -> Row:
        """Return a round's columns about error, as those of an `Evaluation`."""
        return _error_columns(
            self.validation,
            self.test,
            macro=self.macro,
            weighted=self.weighted,
            held_out=self.held_out,
        )


Errors = Evaluation | FleetErrors

PERSONAL: Final = {
    "personal_validation_rmse": "validation_rmse",
    "personal_rmse": "test_rmse",
    "personal_rmse_macro": "test_rmse_macro",
    "personal_held_out_rmse": "held_out_rmse",
}
"""A round's columns about the models that vehicles drive with, each with that of the global one."""


def errors_by_vehicle(evaluated: Iterable[Errors | None], names: Sequence[str]) -> dict[str, float]:
    """Test RMSE of each vehicle, mean over the runs that were evaluated; `names` are in their
    order.

    Vehicles without a test window are left out.
    """
    evaluations = [errors.test for errors in evaluated if isinstance(errors, Evaluation)]
    if not evaluations:
        return {}
    means = {name: fmean(run[k].rmse for run in evaluations) for k, name in enumerate(names)}
    return {name: mean for name, mean in means.items() if mean == mean}


def evaluation_columns(
    model: Errors, vehicle_errors: Errors | None, windows: Sequence[int], held_out: Sequence[bool]
) -> Row:
    """Return a round's columns about error: of the global model, and of those that vehicles drive
    with.
    """
    columns = model.columns(windows, held_out)
    driven = (
        columns
        if vehicle_errors is model
        else {}
        if vehicle_errors is None
        else vehicle_errors.columns(windows, held_out)
    )
    return columns | {name: driven.get(of, nan) for name, of in PERSONAL.items()}


def _error_columns(
    validation: ErrorSums,
    test: ErrorSums,
    *,
    macro: float,
    weighted: float,
    held_out: float,
    margin: float = nan,
) -> Row:
    """Columns of the table of rounds, from pooled sums and means over vehicles."""
    return {
        "evaluated": True,
        "validation_rmse": validation.rmse,
        **{f"test_{name}": metric.value(test) for name, metric in METRICS.items()},
        "test_rmse_macro": macro,
        "test_rmse_weighted": weighted,
        "test_rmse_margin": margin,
        "held_out_rmse": held_out,
    }


@dataclass(frozen=True)
class RoundRecord:
    """Records of one round of all live runs."""

    rounds: list[Row]
    clients: list[Row]
    seconds: dict[str, float]
    """Wall-clock time of the whole stack by what it was spent on, and their `total`."""
    by_vehicle: dict[str, float] = field(default_factory=dict)
    """Test RMSE of single vehicles, mean over the runs; empty where that is not known, or where
    more than `SHOWN` are evaluated."""

    def spending(self, epsilon: Callable[[int], float] | None) -> "RoundRecord":
        """Return the record with the privacy spent by each row's round; None if nothing is private.

        `epsilon` is what so many rounds spend.
        """
        if epsilon is None:
            return self
        rows = [row | {"epsilon": epsilon(row["round"])} for row in self.rounds]
        return replace(self, rounds=rows)


@dataclass
class History:
    """The tables of one method's training, in the order in which its rounds were done."""

    method: str
    rounds: list[Row] = field(default_factory=list)
    clients: list[Row] = field(default_factory=list)
    timing: list[Row] = field(default_factory=list)
    made: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The tables as they were last written, by their names; rows are only ever added."""

    def add(self, round: int, seeds: int, record: RoundRecord) -> None:
        """Append a round."""
        label = {"method": self.method}
        self.rounds += [label | row for row in record.rounds]
        self.clients += [label | row for row in record.clients]
        self.timing.append(label | {"round": round, "seeds": seeds} | record.seconds)

    def last(self, column: str) -> dict[int, Any]:
        """Latest value of a column of `rounds` for every seed."""
        if self.rounds and column not in self.rounds[0]:
            raise SettingError(unknown("column of the rounds", column, self.rounds[0]))
        return {row["seed"]: row[column] for row in self.rounds}


UNTRAINED: Row = blank(declared("rounds").filled_by(TRAINING))
"""Training columns of round 0, the initial model."""
UNEVALUATED: Row = blank(declared("rounds").filled_by(EVALUATION))
"""Evaluation columns of a round between two evaluations."""


def error_columns(sums: ErrorSums) -> Row:
    """Columns of vehicles.parquet for one vehicle, or one stratum of it."""
    errors = {name: metric.value(sums) for name, metric in METRICS.items()}
    return {"windows": sums.windows, **errors}
