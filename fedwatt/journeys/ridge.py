"""Ridge regression of a vehicle's windows on the means of its features, alone or with the fleet.

The model is y = x · β, with x [features + 1] the means of a window's scaled features and 1, and y
its scaled energy. All that it needs of a vehicle are sums over its training windows, and sums add.

- *local*: β of the vehicle's own sums, pulled towards 0 a little.
- *mixed effects*: β of the vehicle's own sums, pulled towards that of all vehicles' sums. The pull
  is a Gaussian prior of the vehicle's deviation from the fleet (Laird and Ware, "Random-effects
  models for longitudinal data", Biometrics 1982), worth `strength` times its windows.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows.client import Client
from fedwatt.windows.ridge import pulled

LOCAL = 1e-3
MIXED = 0.1


@dataclass(frozen=True, eq=False)
class WindowMoments:
    """Means over a vehicle's training windows, or over several vehicles', each counting once.

    gram    float64 [features + 1, features + 1]: x xᵀ
    right   float64 [features + 1]: x y
    """

    gram: FloatArray
    right: FloatArray


def window_features(client: Client, split: str) -> FloatArray:
    """Means of the scaled features and 1 for each window of a split, [windows, features + 1]."""
    return series_features(client.series, client.ends[split], client.window)


def series_features(series: NDArray[np.float32], ends: IntArray, window: int) -> FloatArray:
    """The same for windows of any scaled series [seconds, features] that end at `ends`."""
    total = np.cumsum(series, axis=0, dtype=np.float64)
    total = np.concatenate([np.zeros((1, total.shape[1])), total])
    means = (total[ends + 1] - total[ends + 1 - window]) / window
    return np.column_stack([means, np.ones(len(ends))])


def moments(client: Client) -> WindowMoments:
    """The sums of one vehicle."""
    x, y = window_features(client, "train"), client.labels["train"].astype(np.float64)
    return WindowMoments(x.T @ x / len(y), x.T @ y / len(y))


def fleet_moments(vehicles: Iterable[WindowMoments]) -> WindowMoments:
    """The sums of a fleet, in which every vehicle counts once."""
    found = list(vehicles)
    gram = np.sum([one.gram for one in found], axis=0) / len(found)
    return WindowMoments(gram, np.sum([one.right for one in found], axis=0) / len(found))


def solve(own: WindowMoments, strength: float, towards: FloatArray | None = None) -> FloatArray:
    """β [features + 1] of the sums, pulled towards another (None: 0)."""
    return pulled(own.gram, own.right, strength, towards)
