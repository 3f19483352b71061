"""Mixed-effects ridge of a vehicle's windows on the means of their features.

The model is y = x · (β₀ + β_v), β_v ~ N(0, diag τ²), with x [features + 1] the means of a window's
physical features and 1, and y its energy in units of the vehicle's label scale (Laird and Ware,
"Random-effects models for longitudinal data", Biometrics 1982). A vehicle contributes sums over its
training windows. Residuals of a trip share an offset, so columns and energies are less θ times
their trip mean, θ = 1 - 1/√(1 + ρ m), for a trip of m windows that do not overlap (Fuller and
Battese, J. Econometrics 2, 1974).

With A = Σ x xᵀ / σ², a = Σ x y / σ² and C = (A + diag τ⁻²)⁻¹ a vehicle's part is
β_v = C (a - A β₀), and the fleet's comes from sums over vehicles, by expectation-maximisation:

    Σ (A - A C A) β₀ = Σ (a - A C a),   τ² = mean of β_v² + diag C,   σ² = mean squared residual
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows.client import Client

OFFSET_VARIANCE = 0.5
"""ρ: variance of a trip's offset relative to that of a window's noise."""
EXCHANGES = 30
FIRST_SPREAD = 0.3
LEAST_SPREAD = 1e-4
RIDGE = 1e-7
"""Of the mean diagonal, for β₀ of collinear columns."""


def trip_numbers(ends: IntArray, window: int) -> IntArray:
    """Return the number of the trip of each window, [windows], from the rows where windows end.

    Windows of two trips end at least a window apart; those of one trip do only where their stride,
    the most frequent distance, is as long.

    >>> trip_numbers(np.array([3, 5, 7, 12, 14]), window=4)
    array([0, 0, 0, 1, 1])
    """
    apart = np.diff(ends)
    if not len(apart):
        return np.zeros(len(ends), dtype=np.int64)
    distances, times = np.unique(apart, return_counts=True)
    stride = distances[times.argmax()]
    return np.concatenate([[0], np.cumsum((apart >= window) & (apart != stride))]).astype(np.int64)


def trip_means(values: FloatArray, trip: IntArray) -> FloatArray:
    """Return means over trips, [trips, ...], of values [windows, ...]."""
    windows = np.bincount(trip)
    columns = values.reshape(len(values), int(np.prod(values.shape[1:]))).T
    means = np.stack([np.bincount(trip, column) / windows for column in columns], axis=1)
    return means.reshape(len(windows), *values.shape[1:])


def window_features(client: Client, split: str) -> FloatArray:
    """Return means of the scaled features and 1 for each window of a split, [windows, f + 1]."""
    return series_features(client.series, client.ends[split], client.window)


def series_features(series: NDArray[np.float32], ends: IntArray, window: int) -> FloatArray:
    """Return the same for windows of any scaled series [seconds, f] that end at `ends`."""
    total = np.cumsum(series, axis=0, dtype=np.float64)
    total = np.concatenate([np.zeros((1, total.shape[1])), total])
    means = (total[ends + 1] - total[ends + 1 - window]) / window
    return np.column_stack([means, np.ones(len(ends))])


def _unscaled(client: Client) -> tuple[FloatArray, FloatArray]:
    """Return centre and scale of the features; 0 and 1 where they have no physical unit."""
    scaler = client.scaler
    if scaler is None:
        return np.zeros(len(client.features)), np.ones(len(client.features))
    return scaler.center, scaler.scale


def physical_means(client: Client, split: str) -> FloatArray:
    """Return means of the physical features for each window of a split, [windows, features]."""
    center, scale = _unscaled(client)
    return window_features(client, split)[:, :-1] * scale + center


@dataclass(frozen=True, eq=False)
class WindowSums:
    """Sums over a vehicle's windows, less θ times their trip means.

    gram    float64 [p, p]: x xᵀ of physical features and 1
    right   float64 [p]: x y
    square  y²
    count   windows that do not overlap
    """

    gram: FloatArray
    right: FloatArray
    square: float
    count: float


def window_sums(client: Client, split: str = "train") -> WindowSums:
    """Return the sums of one vehicle over the windows of a split."""
    client = client.as_recorded()
    ends = client.ends[split]
    x = np.column_stack([physical_means(client, split), np.ones(len(ends))])
    y = client.labels[split] + client.label_center_wh / client.label_scale_wh
    trip = trip_numbers(ends, client.window)
    windows = np.bincount(trip).astype(np.float64)
    stride = np.median(np.diff(ends)) if len(ends) > 1 else client.window
    worth = min(float(stride) / client.window, 1.0)
    theta = 1 - 1 / np.sqrt(1 + OFFSET_VARIANCE * windows * worth)
    rows = np.column_stack([x, y])
    rows = rows - theta[trip, None] * trip_means(rows, trip)[trip]
    products = rows.T @ rows * worth
    return WindowSums(
        products[:-1, :-1], products[:-1, -1], float(products[-1, -1]), len(y) * worth
    )


@dataclass(frozen=True, eq=False)
class FleetRidge:
    """The fleet's part of the mixed-effects ridge; arrays [p] for columns x / unit.

    unit    size of a column
    mean    β₀
    spread  τ
    noise   σ
    """

    unit: FloatArray
    mean: FloatArray
    spread: FloatArray
    noise: float

    def posterior(self, sums: WindowSums) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return A, a, C and β_v of a vehicle, for columns x / unit."""
        a = sums.gram / np.outer(self.unit, self.unit) / self.noise**2
        right = sums.right / self.unit / self.noise**2
        covariance = np.linalg.inv(a + np.diag(self.spread**-2.0)).astype(np.float64)
        return a, right, covariance, covariance @ (right - a @ self.mean)

    def contribution(self, sums: WindowSums) -> dict[str, FloatArray]:
        """Return the sums that a vehicle uploads, given the fleet's present part."""
        a, right, covariance, effect = self.posterior(sums)
        beta = self.mean + effect
        scaled = a * self.noise**2
        left = sums.square - 2 * beta @ right * self.noise**2 + beta @ scaled @ beta
        return {
            "matrix": (a - a @ covariance @ a).ravel(),
            "right": right - a @ covariance @ right,
            "effects": effect**2 + np.diag(covariance),
            "residual": np.array([left + np.trace(scaled @ covariance)]),
            "count": np.array([sums.count]),
        }


def fleet_ridge(clients: Iterable[Client]) -> FleetRidge:
    """Return the fleet's part of all vehicles that train."""
    return fit_fleet_ridge([window_sums(client) for client in clients if not client.held_out])


def fit_fleet_ridge(vehicles: Sequence[WindowSums]) -> FleetRidge:
    """Return the fleet's part, after `EXCHANGES` sums over its vehicles."""
    squares = np.mean([np.diag(sums.gram) / sums.count for sums in vehicles], axis=0)
    energy = float(np.mean([sums.square / sums.count for sums in vehicles]))
    unit = np.sqrt(squares) + 1e-12
    columns = len(unit)
    noise = float(np.sqrt(0.05 * energy)) + 1e-9
    fleet = FleetRidge(unit, np.zeros(columns), np.full(columns, FIRST_SPREAD), noise)
    for _ in range(EXCHANGES):
        parts = [fleet.contribution(sums) for sums in vehicles]
        total = {name: np.sum([part[name] for part in parts], axis=0) for name in parts[0]}
        matrix = total["matrix"].reshape(columns, columns)
        ridge = (RIDGE * np.trace(matrix) / columns + 1e-12) * np.eye(columns)
        mean = np.linalg.solve(matrix + ridge, total["right"])
        spread = np.sqrt(np.maximum(total["effects"], 0.0) / len(vehicles))
        noise = float(np.sqrt(max(float(total["residual"][0] / total["count"][0]), 1e-9)))
        fleet = FleetRidge(unit, mean, np.clip(spread, LEAST_SPREAD, 1.0), noise)
    return fleet


def mixed_ridge(client: Client, fleet: FleetRidge, *, validation: bool = False) -> FloatArray:
    """Return β [features + 1] of a vehicle's scaled features and labels, with the fleet's prior.

    It learns from training windows, and from those of `validation` where nothing is validated.
    """
    sums = window_sums(client)
    if validation:
        more = window_sums(client, "validation")
        sums = replace(sums, gram=sums.gram + more.gram, right=sums.right + more.right)
    effect = fleet.posterior(sums)[3]
    beta = (fleet.mean + effect) / fleet.unit
    center, scale = _unscaled(client)
    intercept = beta[-1] + center @ beta[:-1] - client.label_center_wh / client.label_scale_wh
    return np.append(beta[:-1] * scale, intercept)
