"""Two models that a vehicle can make of its own windows in a moment: their mean, and a ridge.

The ridge is linear in the means of the features over a window,

    ŷ = b + Σ_f β_f x̄_f,   β = (XᵀX + λ n I)⁻¹ Xᵀy        (X, y centred; n training windows)

with λ as the vehicle's own validation windows like it best. Both need numpy alone, and sums.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows import Client
from fedwatt.windows.windows import window_means

STRENGTHS: Final = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Candidates of λ; features are scaled."""


def mean_prediction(client: Client) -> FloatArray:
    """The mean training label, for every test window [W]."""
    return np.full(len(client.ends["test"]), client.labels["train"].mean(dtype=np.float64))


def ridge_prediction(candidates: Sequence[Client]) -> FloatArray:
    """Scaled predictions of a vehicle's test windows [W] by its own ridge.

    `candidates` are the same vehicle with different features, of which it takes what its validation
    windows like best.
    """
    best, lowest = mean_prediction(candidates[0]), np.inf
    for client in candidates:
        x = {split: feature_means(client, split) for split in client.ends}
        y = {split: client.labels[split].astype(np.float64) for split in client.ends}
        middle, level = x["train"].mean(axis=0), y["train"].mean()
        values, vectors = np.linalg.eigh(np.cov(x["train"].T, bias=True).reshape(len(middle), -1))
        slope = vectors.T @ ((x["train"] - middle).T @ (y["train"] - level)) / len(y["train"])
        for strength in STRENGTHS:
            beta = vectors @ (slope / (values + strength))
            predicted = {split: (x[split] - middle) @ beta + level for split in x}
            error = float(np.mean((predicted["validation"] - y["validation"]) ** 2))
            if error < lowest:
                best, lowest = predicted["test"], error
    return best


def feature_means(client: Client, split: str) -> FloatArray:
    """Mean of every feature over each window of a split, [W, features]."""
    ends = client.ends[split]
    columns = (window_means(column, ends, length=client.window) for column in client.series.T)
    return np.stack(list(columns), axis=1)
