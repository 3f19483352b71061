"""Fewer features, chosen by a vehicle from its own training trips. Both are off by default.

Principal components turn each vehicle's features into a basis of its own. Averaging models across
vehicles then adds weights that belong to different directions: signs and scales are fixed here, but
nothing makes the second direction of one car that of another. Selection keeps columns where they
are and silences those that the vehicle's own linear model has no use for, so columns mean the same
everywhere. Measure before using either.
"""

import numpy as np

from fedwatt.telemetry.trip import FloatArray

RIDGE = 1e-3  # relative to the variance of a scaled feature
# Directions with less than this share of the variance are rounding error and are left silent.
NEGLIGIBLE = 1e-10


def principal_mix(rows: FloatArray, components: int) -> FloatArray:
    """Map from scaled features to components of unit variance, [features, components].

    `rows` [seconds, features] are scaled training rows. Components come in falling order of
    variance; the largest weight of each is positive.

    >>> principal_mix(np.array([[2.0, -2.0], [-2.0, 2.0]]), 1).round(6)
    array([[ 0.25],
           [-0.25]])
    """
    centred = rows - rows.mean(axis=0)
    variance, directions = np.linalg.eigh(centred.T @ centred / len(rows))
    order = np.argsort(variance)[::-1][:components]
    variance, directions = variance[order], directions[:, order]
    # Ties, as of two features that only mirror each other, go to the first.
    largest = np.argmax(np.round(np.abs(directions), 9), axis=0)
    signs = np.sign(directions[largest, np.arange(len(order))])
    counts = variance > NEGLIGIBLE * max(float(variance[0]), 1.0)
    sizes = np.where(counts, 1 / np.sqrt(np.maximum(variance, 1e-300)), 0.0)
    return np.asarray(directions * signs * sizes)


def selection_mix(window_means: FloatArray, labels: FloatArray, keep: int) -> FloatArray:
    """Map that silences all but `keep` features, diagonal [features, features].

    A ridge regression of window energy [windows] on the windows' mean features [windows, features]
    ranks features by what a standard deviation of each moves.
    """
    centred = window_means - window_means.mean(axis=0)
    spread = centred.std(axis=0)
    gram = centred.T @ centred / len(centred) + RIDGE * np.eye(centred.shape[1])
    weights = np.linalg.solve(gram, centred.T @ (labels - labels.mean()) / len(centred))
    best = np.argsort(-np.abs(weights) * spread, kind="stable")[:keep]
    return np.diag(np.isin(np.arange(len(spread)), best).astype(float))
