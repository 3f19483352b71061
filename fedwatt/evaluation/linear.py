"""Linear baselines of a vehicle: the mean of its labels, and a ridge regression.

The ridge is linear in the means of the features over a window,

    ŷ = b + Σ_f β_f x̄_f,   β = (XᵀX + λ n I)⁻¹ Xᵀy        (X, y centred; n training windows)

with the λ of the lowest error on the vehicle's validation windows. Both need numpy alone, and sums.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows import Client
from fedwatt.windows.windows import window_means

STRENGTHS: Final = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Candidates of λ; features are scaled."""


class LinearBaseline(NamedTuple):
    """Scaled predictions of a vehicle's test windows [W], and the validation error behind them."""

    test: FloatArray
    validation_error: float
    """Mean squared error of the scaled validation windows."""


def mean_baseline(client: Client) -> LinearBaseline:
    """Predict the mean training label for every window."""
    mean = client.as_recorded().labels["train"].mean(dtype=np.float64)
    test = np.full(len(client.ends["test"]), mean)
    return LinearBaseline(test, _mean_square(client.labels["validation"] - mean))


def ridge_baseline(feature_sets: Sequence[Client]) -> LinearBaseline:
    """Predict by the vehicle's ridge.

    `feature_sets` are the same vehicle with different features. Features and λ are those of the
    lowest validation error.
    """
    best = LinearBaseline(mean_baseline(feature_sets[0]).test, np.inf)
    for client in (features.as_recorded() for features in feature_sets):
        x = {split: feature_means(client, split) for split in client.ends}
        y = {split: client.labels[split].astype(np.float64) for split in client.ends}
        centre = x["train"].mean(axis=0)
        level = y["train"].mean()
        covariance = np.cov(x["train"].T, bias=True).reshape(len(centre), -1)
        values, vectors = np.linalg.eigh(covariance)
        slope = vectors.T @ ((x["train"] - centre).T @ (y["train"] - level)) / len(y["train"])
        for strength in STRENGTHS:
            beta = vectors @ (slope / (values + strength))
            predicted = {split: (x[split] - centre) @ beta + level for split in x}
            error = _mean_square(predicted["validation"] - y["validation"])
            if error < best.validation_error:
                best = LinearBaseline(predicted["test"], error)
    return best


def _mean_square(errors: FloatArray) -> float:
    return float(np.mean(errors.astype(np.float64) ** 2))


def feature_means(client: Client, split: str) -> FloatArray:
    """Return the mean of every feature over each window of a split, [W, features]."""
    ends = client.ends[split]
    columns = (window_means(column, ends, length=client.window) for column in client.series.T)
    return np.stack(list(columns), axis=1)
