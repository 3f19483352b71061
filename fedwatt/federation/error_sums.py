"""Error sums as contributions to a sum over the fleet.

To evaluate a model, a vehicle adds its `ErrorSums` of validation and of test windows, n_k, its test
RMSE and n_k times that, so that the fleet's pooled, mean and weighted errors follow from totals. At
the end it adds the sums of its test windows. All vectors have the same length.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from fedwatt.errors import DataError
from fedwatt.federation.records import FleetErrors
from fedwatt.metrics import SUMS, ErrorSums
from fedwatt.metrics.sums import Fields, FloatArray

MOST_WINDOWS: Final = 4_000_000
"""Of a vehicle, of each kind."""
LARGEST_ERROR_WH: Final = 10_000.0
"""Of a window; larger ones are clipped and counted."""
_WEIGHTS: Final[Fields] = {
    "train_windows": (1, float(MOST_WINDOWS)),
    "rmse": (1, LARGEST_ERROR_WH),
    "weighted_rmse": (1, MOST_WINDOWS * LARGEST_ERROR_WH),
}


def _limit(name: str) -> float:
    """Return the largest |value| of a sum over a vehicle's windows."""
    if SUMS[name] is int:
        return float(MOST_WINDOWS)
    return MOST_WINDOWS * LARGEST_ERROR_WH ** (2 if "squared" in name else 1)


EVALUATION: Final[Fields] = {name: (2, _limit(name)) for name in SUMS} | _WEIGHTS
"""Contribution to the evaluation of a model: validation, then test windows."""
FINAL: Final[Fields] = {name: (1, _limit(name)) for name in SUMS}
"""Contribution to the errors of the final or personalised model: test windows."""


def evaluation_values(
    validation: ErrorSums, test: ErrorSums, windows: int
) -> dict[str, FloatArray]:
    """Return one vehicle's contribution; `windows` is n_k."""
    rmse = _finite(np.array([test.rmse]), LARGEST_ERROR_WH)
    weights = {
        "train_windows": np.array([float(windows)]),
        "rmse": rmse,
        "weighted_rmse": rmse * windows,
    }
    return error_values([validation, test]) | weights


def error_values(rows: Sequence[ErrorSums]) -> dict[str, FloatArray]:
    """Return error sums as a contribution."""
    table = np.stack([row.as_array() for row in rows])
    return {name: _finite(table[:, at], _limit(name)) for at, name in enumerate(SUMS)}


def fleet_errors(sums: Mapping[str, FloatArray], vehicles: int) -> FleetErrors:
    """Return the errors of so many vehicles from totals; DataError if they cannot be true."""
    validation, test = error_rows(sums, 2)
    windows, rmse, weighted = (float(sums[name][0]) for name in _WEIGHTS)
    if not windows > 0:
        raise DataError("the vehicles that evaluated a model have no windows at all")
    return FleetErrors(
        validation,
        test,
        vehicles=vehicles,
        mean_windows=windows / vehicles,
        macro=rmse / vehicles,
        weighted=weighted / windows,
    )


def error_rows(sums: Mapping[str, FloatArray], rows: int) -> list[ErrorSums]:
    """Return error sums from totals."""
    counts = {name: np.rint(sums[name]) for name in SUMS if SUMS[name] is int}
    table = np.stack([counts.get(name, sums[name]) for name in SUMS], axis=1)
    # Fixed point rounds to a step, so 0 may come out a little below it.
    return [ErrorSums.from_array(np.where(row > -1e-3, row.clip(0), row)) for row in table[:rows]]


def _finite(values: FloatArray, limit: float) -> FloatArray:
    """Replace values that are not finite: such a sum would show who has them."""
    return np.nan_to_num(values, nan=limit, posinf=limit, neginf=-limit)
