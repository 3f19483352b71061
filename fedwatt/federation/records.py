"""Rows of a run's tables: one for each round and seed, one for each participant.

Participants are recorded as columns: a round on a GPU lasts a few milliseconds, and filling
hundreds of dictionaries one by one takes longer.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import nan
from typing import Any

import numpy as np

from fedwatt.errors import SettingError, unknown
from fedwatt.federation.participation import IntArray, Members
from fedwatt.federation.work import Work
from fedwatt.metrics import (
    METRICS,
    ErrorSums,
    drift_dispersion,
    macro_mean,
    mean_drift,
    micro,
    pearson,
    spearman,
    weighted_mean,
)
from fedwatt.metrics.errors import rmse_margin
from fedwatt.metrics.rounds import TOO_LONG, TURNS, out_of_line
from fedwatt.metrics.sums import FloatArray
from fedwatt.tables import EVALUATION, TRAINING, Column, blank, declared, recorded

Row = dict[str, Any]

SHOWN = 200
"""Most vehicles whose single errors a round records."""


@dataclass(frozen=True)
class Evaluation:
    """A model's errors on each evaluated vehicle."""

    validation: Sequence[ErrorSums]
    test: Sequence[ErrorSums]
    of: int = 0
    """Number of vehicles that train, of which the evaluated ones are a sample; 0: not known."""

    def columns(self, windows: Sequence[int], held_out: Sequence[bool]) -> Row:
        """Return the error columns of a round; `windows` is n_k of every evaluated vehicle.

        Held-out vehicles count in `held_out_rmse` only, all others in the other columns.
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
    """A model's errors on a whole fleet whose single vehicles' errors are not known."""

    validation: ErrorSums
    test: ErrorSums
    vehicles: int
    """Number of vehicles in the sums."""
    mean_windows: float
    """Mean n_k."""
    macro: float
    """Mean of the vehicles' test RMSE."""
    weighted: float
    """Mean of the vehicles' test RMSE, weighted by n_k."""
    held_out: float = nan
    """Test RMSE of vehicles that never train."""

    def columns(self, windows: Sequence[int], held_out: Sequence[bool]) -> Row:
        """Return the error columns of a round, as `Evaluation.columns`."""
        return _error_columns(
            self.validation,
            self.test,
            macro=self.macro,
            weighted=self.weighted,
            held_out=self.held_out,
        )


Errors = Evaluation | FleetErrors

PERSONAL = {
    "personal_validation_rmse": "validation_rmse",
    "personal_rmse": "test_rmse",
    "personal_rmse_macro": "test_rmse_macro",
    "personal_held_out_rmse": "held_out_rmse",
}
"""Columns about personalised models, each with the column of the global model."""


def evaluation_columns(
    model: Errors, vehicle_errors: Errors | None, windows: Sequence[int], held_out: Sequence[bool]
) -> Row:
    """Return the error columns of a round, of the global model and of personalised models.

    `vehicle_errors` are those of personalised models; the same as `model` without them.
    """
    columns = model.columns(windows, held_out)
    personal = columns
    if vehicle_errors is not model:
        personal = {} if vehicle_errors is None else vehicle_errors.columns(windows, held_out)
    return columns | {name: personal.get(of, nan) for name, of in PERSONAL.items()}


def _error_columns(
    validation: ErrorSums,
    test: ErrorSums,
    *,
    macro: float,
    weighted: float,
    held_out: float,
    margin: float = nan,
) -> Row:
    """Return error columns from pooled sums and means over vehicles."""
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
    """The rows that one round of all live runs adds to the tables."""

    rounds: list[Row]
    clients: list[Row]
    seconds: dict[str, float]
    """Wall-clock time of the whole stack by part of a round, and their `total`."""
    by_vehicle: dict[str, float] = field(default_factory=dict)
    """Test RMSE of single vehicles, mean over the runs; empty where it is not known or for more
    than `SHOWN` vehicles."""

    def spending(self, epsilon: Callable[[int], float] | None) -> "RoundRecord":
        """Return the record with the column "epsilon", the privacy spent after each row's round.

        `epsilon` gives that of t rounds; None: no method is private.
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
    """Tables by name as last written, to which only new rows are added."""

    def add(self, round: int, seeds: int, record: RoundRecord) -> None:
        """Append a round."""
        label = {"method": self.method}
        self.rounds += [label | row for row in record.rounds]
        self.clients += [label | row for row in record.clients]
        self.timing.append(label | {"round": round, "seeds": seeds} | record.seconds)

    def last(self, column: str) -> dict[int, Any]:
        """Return the latest value of a column of `rounds` for every seed."""
        if self.rounds and column not in self.rounds[0]:
            raise SettingError(unknown("column of the rounds", column, self.rounds[0]))
        return {row["seed"]: row[column] for row in self.rounds}


UNTRAINED: Row = blank(declared("rounds").filled_by(TRAINING))
"""Training columns of round 0, which has no training."""
UNEVALUATED: Row = blank(declared("rounds").filled_by(EVALUATION))
"""Evaluation columns of a round between two evaluations."""


def error_columns(sums: ErrorSums) -> Row:
    """Return the columns of vehicles.parquet for a vehicle, or a stratum of it."""
    errors = {name: metric.value(sums) for name, metric in METRICS.items()}
    return {"windows": sums.windows, **errors}


@dataclass(frozen=True, eq=False)
class Clients:
    """The columns of a round in the table of clients, with an entry per called vehicle."""

    columns: dict[str, list[Any]]
    runs: Sequence[int]
    """The run of each called vehicle."""

    @property
    def rows(self) -> list[Row]:
        """A row for each vehicle."""
        names = list(self.columns)
        cells = zip(*self.columns.values(), strict=True)
        return [dict(zip(names, row, strict=True)) for row in cells]

    @cached_property
    def of_run(self) -> dict[int, IntArray]:
        """By run, the places of its vehicles."""
        runs = np.array(self.runs, dtype=np.int64)
        return {run: np.flatnonzero(runs == run) for run in dict.fromkeys(self.runs)}

    @cached_property
    def _numbers(self) -> dict[str, FloatArray]:
        """The columns that a round's means, sums and correlations need, as arrays."""
        names = ("steps", "drift", "roughness", "staleness", "replied", "rejected")
        return {name: np.array(self.columns[name], dtype=np.float64) for name in names}

    def with_lengths(self) -> "Clients":
        """Add columns with each vehicle's step length relative to the others', and its flag."""
        numbers = self._numbers
        stepped = (numbers["replied"] * numbers["steps"]) > 0
        length = np.divide(
            numbers["drift"],
            numbers["steps"],
            where=stepped,
            out=np.full_like(numbers["drift"], nan),
        )
        ratio, z = np.full((2, len(self.runs)), nan)
        for places in self.of_run.values():
            ratio[places], z[places] = out_of_line(length[places])
        against = np.array(self.columns.get("turns_against", 0.0), dtype=np.float64)
        flagged = (z > TOO_LONG) | (against >= TURNS)
        lengths = {
            "length_ratio": _normalised(ratio),
            "length_z": _normalised(z),
            "flagged": flagged.tolist(),
        }
        return Clients(self.columns | lengths, self.runs)

    def training_columns(
        self, run: int, *, available: int, learning_rate: float, clock: float, agreement: float
    ) -> Row:
        """Return the columns of a run's round on participation, drift and roughness."""
        places = self.of_run.get(run, np.zeros(0, dtype=np.int64))
        columns = {name: values[places] for name, values in self._numbers.items()}
        replied = columns["replied"] > 0
        rejected = int(columns["rejected"].sum())
        drifts = columns["drift"][replied]
        roughness = columns["roughness"][replied]
        replies = len(drifts)
        return {
            "available": available,
            "participants": len(places),
            "replies": replies,
            "lost": len(places) - replies - rejected,
            "rejected": rejected,
            "steps": int(columns["steps"][replied].sum()),
            "learning_rate": learning_rate,
            "drift_mean": mean_drift(drifts),
            "drift_cv": drift_dispersion(drifts),
            "agreement": agreement,
            "roughness_mean": _finite_mean(roughness),
            "pearson": pearson(roughness, drifts),
            "spearman": spearman(roughness, drifts),
            "clock": clock,
            "staleness_mean": _finite_mean(columns["staleness"][replied]),
        }


def clients(
    work: Work, round: int, seeds: Sequence[int], members: Members, records: Iterable[Column]
) -> Clients:
    """Return the table of clients of a round: all called vehicles, with or without an update.

    `records` are the columns that the method's rules fill.
    """
    calls = work.called
    done = {call: row for row, call in enumerate(work.calls)}
    answered = [done.get(call, -1) for call in calls]
    counted = [*work.counted.tolist(), False]  # the last one, at -1, is for missing updates
    replied = [counted[row] for row in answered]
    columns: dict[str, list[Any]] = {
        "seed": [seeds[call.run] for call in calls],
        "round": [round] * len(calls),
        "vehicle": [members.name(call.vehicle) for call in calls],
        "windows": [members.windows(call.vehicle) for call in calls],
        "steps": [call.steps for call in calls],
        "replied": replied,
        "rejected": [
            row >= 0 and not counts for row, counts in zip(answered, replied, strict=True)
        ],
    }
    for column in recorded(records):
        column_values = work.columns.get(column.name)
        if column_values is None:
            columns[column.name] = [column.unknown] * len(calls)
        else:
            values = [*map(column.value, column_values), column.unknown]
            columns[column.name] = [values[row] for row in answered]
    return Clients(columns, [call.run for call in calls]).with_lengths()


def _normalised(values: FloatArray) -> list[float]:
    """Return the numbers with `math.nan` for NaN, so that equal rows compare equal."""
    return [value if value == value else nan for value in values.tolist()]


def _finite_mean(values: FloatArray) -> float:
    finite = [value for value in values.tolist() if value == value]
    return sum(finite) / len(finite) if finite else nan
