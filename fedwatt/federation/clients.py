"""The vehicles that were asked in a round, a column for each thing that is told of them.

Columns rather than rows: a round on a GPU lasts a few milliseconds, and hundreds of dictionaries
that are filled one by one take longer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.federation.members import Members
from fedwatt.federation.records import Row
from fedwatt.federation.work import Work
from fedwatt.metrics import drift_dispersion, mean_drift, pearson, spearman
from fedwatt.metrics.agreement import TOO_LONG, TURNS, out_of_line
from fedwatt.tables import Column, recorded


@dataclass(frozen=True, eq=False)
class Clients:
    """The columns of the table of clients, each [asked]."""

    columns: dict[str, list[Any]]
    runs: Sequence[int]
    """The run of each vehicle that was asked."""

    @property
    def rows(self) -> list[Row]:
        """A row for each vehicle."""
        names = list(self.columns)
        cells = zip(*self.columns.values(), strict=True)
        return [dict(zip(names, row, strict=True)) for row in cells]

    @cached_property
    def of_run(self) -> dict[int, NDArray[np.int64]]:
        """By run, the places of its vehicles."""
        runs = np.array(self.runs, dtype=np.int64)
        return {run: np.flatnonzero(runs == run) for run in dict.fromkeys(self.runs)}

    @cached_property
    def _numbers(self) -> dict[str, NDArray[np.float64]]:
        """The columns of which a round tells a mean, a sum or a correlation."""
        names = ("steps", "drift", "roughness", "staleness", "replied", "rejected")
        return {name: np.array(self.columns[name], dtype=np.float64) for name in names}

    def with_lengths(self) -> "Clients":
        """Return the rows with each vehicle's step length relative to the others, and its flag."""
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
            "length_ratio": _known(ratio),
            "length_z": _known(z),
            "flagged": flagged.tolist(),
        }
        return Clients(self.columns | lengths, self.runs)

    def training_columns(
        self, run: int, *, available: int, learning_rate: float, clock: float, agreement: float
    ) -> Row:
        """Return a round's columns about participation, drift and roughness of one run's
        vehicles.
        """
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
            "roughness_mean": _known_mean(roughness),
            "pearson": pearson(roughness, drifts),
            "spearman": spearman(roughness, drifts),
            "clock": clock,
            "staleness_mean": _known_mean(columns["staleness"][replied]),
        }


def clients(
    work: Work, round: int, seeds: Sequence[int], members: Members, records: Iterable[Column]
) -> Clients:
    """Return the outcome of every vehicle that was asked, whether or not it answered.

    `records` are the columns that the method's rules fill.
    """
    calls = work.asked
    done = {call: row for row, call in enumerate(work.calls)}
    answered = [done.get(call, -1) for call in calls]
    counted = [*work.counted.tolist(), False]  # the last one, at -1, is whoever did not answer
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


def _known(values: NDArray[np.float64]) -> list[float]:
    """Return the numbers, the one NaN in place of any other, so that rows can be compared."""
    return [value if value == value else nan for value in values.tolist()]


def _known_mean(values: NDArray[np.float64]) -> float:
    finite = [value for value in values.tolist() if value == value]
    return sum(finite) / len(finite) if finite else nan
