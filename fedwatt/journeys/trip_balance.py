"""What a vehicle's ridge lacks of whole trips: a small change of its coefficients.

Least squares of windows weigh every minute alike and mind few bad ones most; a driver minds the
share of a trip. The change δ of the ridge's coefficients β minimises

    Σ_t |ȳ_t - x̄_t · (β + δ)| / e_t  +  PULL · mean over windows of (x · δ)² / ν²

with means x̄_t and ȳ_t over the windows of training trip t, its mean energy e_t, and the mean
squared error ν² of the ridge's training windows. Absolute deviations by reweighted least squares
(Schlossmacher, JASA 68, 1973). Few trips hardly change anything. A network that learned the same
windows by the same squares lacks the same, so a mixture takes all of δ.
"""

import numpy as np

from fedwatt.journeys.ridge import WindowMoments, window_features
from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows.client import Client

PULL = 30.0
"""Chosen on validation trips of VED: with a weaker pull trips gain little more and windows lose."""
REWEIGHTINGS = 8
SMALLEST = 0.02
"""Relative errors below this weigh alike."""
LEAST_ENERGY = 0.5
"""No trip's mean energy counts as less than so many label scales: standing trips have next to none,
and nobody minds their share."""


def trip_numbers(ends: IntArray, window: int) -> IntArray:
    """Number of the trip that each window is of, [windows], from the rows where windows end.

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


def trip_balance(client: Client, own: WindowMoments, beta: FloatArray) -> FloatArray:
    """δ [features + 1] for a ridge `beta` of the vehicle's training windows, whose sums are `own`.

    In units of the labels' scale.
    """
    x, y = window_features(client, "train"), client.labels["train"].astype(np.float64)
    left = y - x @ beta
    trip = trip_numbers(client.ends["train"], client.window)
    windows = np.bincount(trip)
    mean_x = np.stack([np.bincount(trip, column) / windows for column in x.T], axis=1)
    mean_y, lacking = (np.bincount(trip, values) / windows for values in (y, left))
    center = client.label_center_wh / client.label_scale_wh
    energy = np.maximum(np.abs(mean_y + center), LEAST_ENERGY)
    pull = PULL * own.gram / max(float(np.mean(left**2)), 1e-12) + 1e-9 * np.eye(len(beta))
    delta = np.zeros(len(beta))
    for _ in range(REWEIGHTINGS):
        off = np.abs(lacking - mean_x @ delta) / energy
        weighed = mean_x / (energy**2 * np.maximum(off, SMALLEST))[:, None]
        delta = np.linalg.solve(weighed.T @ mean_x + pull, weighed.T @ lacking)
    return delta
