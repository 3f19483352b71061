"""Error sums as vectors of a secure sum: what a vehicle adds, and what the total says of a fleet.

To judge a model, a vehicle adds its `ErrorSums` of validation and of test windows, n_k, its test
RMSE and n_k times that, so that the fleet's pooled, mean and weighted errors follow from totals. At
the end it adds the sums of its test windows by stratum; strata that it has none of are 0. A vehicle
that hides counts for a share of itself, by chance, in all of them.
Everybody's vectors have the same length, whatever was driven, and words of 64 bits: squared errors
of single vehicles differ by many orders.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from fedwatt.errors import DataError
from fedwatt.federation.records import FleetErrors
from fedwatt.metrics import SUMS, ErrorSums
from fedwatt.privacy.fixed_point import FloatArray, Layout
from fedwatt.windows.labelled import SHARED_STRATA, STRATA

MOST_WINDOWS: Final = 4_000_000
"""Of a vehicle, of each kind."""
LARGEST_ERROR_WH: Final = 10_000.0
"""Of a window; larger ones are clipped and counted."""
SPLITS: Final = ("validation", "test")
STRATUM_NAMES: Final = (
    "all",
    *(f"{kind}: {name}" for kind in SHARED_STRATA for name in STRATA[kind].names),
)
"""What errors are shown by, for every vehicle alike."""
SIZES: Final = {
    "share": (1, 2.0),
    "train_windows": (1, float(MOST_WINDOWS)),
    "rmse": (1, LARGEST_ERROR_WH),
    "weighted_rmse": (1, MOST_WINDOWS * LARGEST_ERROR_WH),
}
"""Fields beside the error sums when a model is judged."""


def judging_layout(vehicles: int) -> Layout:
    """What vehicles add to judge a model; `vehicles` are called."""
    return Layout(_fields(len(SPLITS)) | SIZES, vehicles=vehicles)


def strata_layout(vehicles: int) -> Layout:
    """What vehicles add of their test windows by stratum."""
    return Layout(_fields(len(STRATUM_NAMES)), vehicles=vehicles)


def judging_values(
    validation: ErrorSums, test: ErrorSums, weight: int, share: float = 1.0
) -> dict[str, FloatArray]:
    """What one vehicle adds; `weight` is what its training windows count, `share` its errors."""
    rmse = _finite(np.array([test.rmse]), LARGEST_ERROR_WH)
    own = {
        "share": np.array([share]),
        "train_windows": np.array([float(weight)]),
        "rmse": share * rmse,
        "weighted_rmse": rmse * weight,
    }
    return _columns([validation, test], share) | own


def strata_values(parts: Mapping[str, ErrorSums], share: float = 1.0) -> dict[str, FloatArray]:
    """What one vehicle adds, from its errors by stratum; DataError if it has one nobody knows."""
    if unknown := parts.keys() - set(STRATUM_NAMES):
        raise DataError(f"a stratum '{min(unknown)}' is not among those that vehicles add up")
    return _columns([parts.get(name, ErrorSums()) for name in STRATUM_NAMES], share)


def judged_errors(sums: Mapping[str, FloatArray], vehicles: int) -> FleetErrors:
    """What the totals say of the `vehicles` in them; DataError if they cannot be true."""
    validation, test = _rows(sums, len(SPLITS))
    (share,), (windows,), (rmse,), (weighted,) = (sums[name] for name in SIZES)
    if not windows > 0 or not share > 0:
        raise DataError("the vehicles that judged a model have no windows at all")
    return FleetErrors(
        validation,
        test,
        vehicles=vehicles,
        mean_windows=float(windows) / vehicles,
        macro=float(rmse) / float(share),
        weighted=float(weighted) / float(windows),
    )


def strata_errors(sums: Mapping[str, FloatArray]) -> dict[str, ErrorSums]:
    """The fleet's errors by stratum; DataError if they cannot be true."""
    rows = _rows(sums, len(STRATUM_NAMES))
    return {name: own for name, own in zip(STRATUM_NAMES, rows, strict=True) if own.windows}


def _fields(rows: int) -> dict[str, tuple[int, float]]:
    return {name: (rows, _limit(name)) for name in SUMS}


def _limit(name: str) -> float:
    """Largest |value| of a sum over a vehicle's windows."""
    if SUMS[name] is int:
        return float(MOST_WINDOWS)
    return MOST_WINDOWS * LARGEST_ERROR_WH ** (2 if "squared" in name else 1)


def _columns(rows: Sequence[ErrorSums], share: float) -> dict[str, FloatArray]:
    table = share * np.stack([own.as_array() for own in rows])
    return {name: _finite(table[:, at], _limit(name)) for at, name in enumerate(SUMS)}


def _finite(values: FloatArray, limit: float) -> FloatArray:
    """A model may predict anything; a sum that is not finite would say who has it."""
    return np.nan_to_num(values, nan=limit, posinf=limit, neginf=-limit)


def _rows(sums: Mapping[str, FloatArray], rows: int) -> list[ErrorSums]:
    # Counts of vehicles that count for shares of themselves are no whole numbers.
    counts = {name: np.ceil(sums[name] - 1e-3) for name in SUMS if SUMS[name] is int}
    table = np.stack([counts.get(name, sums[name]) for name in SUMS], axis=1)
    # Fixed point rounds to a step, so what is 0 may come out a little below it.
    return [ErrorSums.from_array(np.where(row > -1e-3, row.clip(0), row)) for row in table[:rows]]
