"""Errors of predicted window energy, as sums that add up across vehicles.

Paper, section "Evaluation Metrics": `eq:mae_metric`, `eq:rmse_metric`, `eq:mape_metric`, with
micro, macro and n_k-weighted averages and strata. A vehicle reports an `ErrorSums`, never a row of
its trips; a fleet's sums are the sum of its vehicles' sums, simulated or deployed.

MAPE divides by |Y| + ε_Y, and windows of idling, coasting or regeneration have labels near zero, so
it is ruled by ε_Y and by how many such windows there are. The share of near-zero windows is
therefore kept beside it, and wMAPE = Σ|e| / Σ|Y|, which has no ε, next to both.

An entry of `METRICS` is all that a further metric needs: tables, files, report and documentation
follow. One that needs another sum gets it as a field of `ErrorSums`, filled in
`ErrorSums.of`, and named in `signed` if it may be below 0.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from math import isfinite, nan, sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedwatt.errors import DataError

TYPICAL_WH = 100.0
"""Size of an ordinary label: a minute of driving uses 50 to 200 Wh."""

EPSILON_Y = 0.01
"""ε_Y of MAPE, as a share of an ordinary label: 1 Wh."""

NEAR_ZERO = 0.05
"""A window with |Y| below this share of an ordinary label counts as near zero: 5 Wh."""


@dataclass(frozen=True)
class ErrorSums:
    """Contribution of a set of windows to the errors of a fleet."""

    windows: int = 0
    squared_wh2: float = 0.0
    """Σ e²"""
    absolute_wh: float = 0.0
    """Σ |e|"""
    percentage: float = 0.0
    """Σ |e| / (|Y| + ε_Y), a ratio"""
    label_wh: float = 0.0
    """Σ |Y|"""
    near_zero: int = 0
    """Windows with |Y| near zero"""

    signed: ClassVar[frozenset[str]] = frozenset()
    """Names of sums that may be below 0; a row with any other below 0 is refused."""

    @classmethod
    def of(
        cls, predicted_wh: ArrayLike, label_wh: ArrayLike, typical: float = TYPICAL_WH
    ) -> "ErrorSums":
        """Return sums over windows; both arguments in Wh, shape [windows].

        Labels of another target are in its unit, and `typical` is the size of an ordinary one.

        >>> ErrorSums.of([110.0, 0.0], [100.0, 4.0]).mae
        7.0
        """
        predicted = np.asarray(predicted_wh, dtype=np.float64)
        label = np.asarray(label_wh, dtype=np.float64)
        if predicted.shape != label.shape or label.ndim != 1:
            # Broadcasting [W, 1] against [W] would give W² plausible errors.
            raise ValueError(
                f"Predictions {predicted.shape} and labels {label.shape} must both be [windows]."
            )
        error = np.abs(predicted - label)
        size = np.abs(label)
        return cls(
            windows=label.size,
            squared_wh2=float(np.square(error).sum()),
            absolute_wh=float(error.sum()),
            percentage=float((error / (size + EPSILON_Y * typical)).sum()),
            label_wh=float(size.sum()),
            near_zero=int((size < NEAR_ZERO * typical).sum()),
        )

    def __add__(self, other: "ErrorSums") -> "ErrorSums":
        return ErrorSums(*(getattr(self, name) + getattr(other, name) for name in SUMS))

    def as_array(self) -> NDArray[np.float64]:
        """Return the sums in the order of `SUMS`, as a vehicle reports them."""
        return np.array([getattr(self, name) for name in SUMS], dtype=np.float64)

    @classmethod
    def from_array(cls, row: NDArray[np.float64]) -> "ErrorSums":
        """Return the sums from a row of numbers in the order of `SUMS`.

        >>> ErrorSums.from_array(ErrorSums.of([110.0, 0.0], [100.0, 4.0]).as_array()).mae
        7.0
        """
        for name, value in zip(SUMS, row.tolist(), strict=True):
            if not isfinite(value) or (value < 0 and name not in cls.signed):
                raise DataError(f"error sums are finite and not below 0, and '{name}' is {value:g}")
        return cls(*(SUMS[name](value) for name, value in zip(SUMS, row.tolist(), strict=True)))

    @property
    def rmse(self) -> float:
        """Root mean squared error in Wh per window, `eq:rmse_metric`."""
        return sqrt(self.squared_wh2 / self.windows) if self.windows else nan

    @property
    def mae(self) -> float:
        """Mean absolute error in Wh per window, `eq:mae_metric`."""
        return self.absolute_wh / self.windows if self.windows else nan

    @property
    def mape(self) -> float:
        """Mean absolute percentage error in per cent with ε_Y = 1 Wh, `eq:mape_metric`."""
        return 100 * self.percentage / self.windows if self.windows else nan

    @property
    def wmape(self) -> float:
        """Σ|e| / Σ|Y| in per cent."""
        return 100 * self.absolute_wh / self.label_wh if self.label_wh else nan


SUMS: dict[str, type] = {field.name: type(field.default) for field in fields(ErrorSums)}
"""Names of the sums and their types, in the order in which an array holds them."""


@dataclass(frozen=True)
class Metric:
    """A figure of the errors on a set of windows."""

    title: str
    """Its name in headings."""
    unit: str
    meaning: str
    of: Callable[[ErrorSums], float]
    digits: int = 1
    """Decimals that a report shows."""
    in_report: bool = True
    """Whether it is a column of the report's table of results."""
    headline: bool = False
    """Whether it is among the few that a terminal has room for."""

    def value(self, sums: ErrorSums) -> float:
        """Return the figure; NaN where it would divide by zero, as it does without windows."""
        try:
            return self.of(sums)
        except ZeroDivisionError:
            return nan


METRICS: dict[str, Metric] = {
    "rmse": Metric(
        "RMSE", "Wh", "root mean squared error of a window", lambda e: e.rmse, headline=True
    ),
    "mae": Metric("MAE", "Wh", "mean absolute error of a window", lambda e: e.mae, headline=True),
    "mape": Metric(
        "MAPE", "%", "mean absolute percentage error, with ε_Y = 1 Wh", lambda e: e.mape
    ),
    "wmape": Metric("wMAPE", "%", "Σ|e| / Σ|Y|, which has no ε", lambda e: e.wmape, headline=True),
    "near_zero": Metric(
        "Near zero",
        "",
        "share of windows with |Y| < 5 Wh, which rule MAPE",
        lambda e: e.near_zero / e.windows,
        in_report=False,
    ),
}
"""Metrics by the name that their columns have, in the order of their columns."""


def micro(vehicles: Iterable[ErrorSums]) -> ErrorSums:
    """Pool the errors of all windows: every window counts the same.

    >>> micro([ErrorSums.of([1.0], [4.0]), ErrorSums.of([4.0], [0.0])]).mae
    3.5
    """
    return sum(vehicles, start=ErrorSums())


def macro_mean(values: Sequence[float]) -> float:
    """Return the mean of a vehicle-level metric: every vehicle counts the same.

    Vehicles without a value (no windows: NaN) are left out; NaN if none has one.

    >>> macro_mean([10.0, 30.0, float("nan")])
    20.0
    """
    return weighted_mean(values, [1] * len(values))


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the mean of a vehicle-level metric weighted by n_k, the vehicle's training windows.

    >>> weighted_mean([10.0, 30.0], [3, 1])
    15.0
    """
    finite = [(v, w) for v, w in zip(values, weights, strict=True) if v == v]
    total = sum(w for _, w in finite)
    return sum(v * w for v, w in finite) / total if total else nan


NORMAL_95 = 1.959964


def rmse_margin(vehicles: Sequence[ErrorSums], population: int) -> float:
    """Return half of the 95 % interval of the RMSE of `population` vehicles from a sample, in Wh.

    0 where these are all; NaN where fewer than two of them have windows.

    >>> alike = [ErrorSums.of([3.0, 1.0], [1.0, 3.0])] * 5
    >>> rmse_margin(alike, 1000)
    0.0
    """
    squared = np.array([sums.squared_wh2 for sums in vehicles if sums.windows])
    windows = np.array([float(sums.windows) for sums in vehicles if sums.windows])
    count = len(windows)
    if len(vehicles) >= population:
        return 0.0
    if count < 2:
        return nan
    with np.errstate(over="ignore", invalid="ignore"):  # errors without bounds have no margin
        mean = squared.sum() / windows.sum()
        spread = np.square(squared - mean * windows).sum() / (count - 1) / np.square(windows.mean())
    error = sqrt((1 - count / population) / count * spread)
    return _student_95(count - 1) * error / (2 * sqrt(mean)) if mean else 0.0


STUDENT_95 = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764}
"""Student's t for 95 % where its expansion is too far off."""


def _student_95(freedom: int) -> float:
    """Return Student's t for 95 % by its expansion around the normal quantile.

    >>> round(_student_95(2), 2), round(_student_95(10), 2), round(_student_95(30), 2)
    (4.3, 2.23, 2.04)
    """
    if freedom in STUDENT_95:
        return STUDENT_95[freedom]
    z = NORMAL_95
    first = (z**3 + z) / (4 * freedom)
    return z + first + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
