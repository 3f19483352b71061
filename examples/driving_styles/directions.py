"""Directions in which vehicles differ from each other more than their own trips do.

With B the covariance of the vehicles' means and W that of trips about their vehicle's mean, they
are the leading solutions of B a = λ W a (Fisher's discriminants; a speaker is told from another in
the same way). Along each, trips scatter by 1, so that distances count the same in all of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fedwatt.errors import DataError
from fedwatt.telemetry.trip import FloatArray

RIDGE: Final = 0.05
"""Of the mean variance, added to W: units that are hardly ever active say nothing about style."""
MOST: Final = 4
CLEAR: Final = 0.25
"""Share of the first direction's λ, above what trips alone make, that any other must have."""


@dataclass(frozen=True, eq=False)
class StyleSums:
    """What a vehicle adds: its mean, that mean squared, its trips' scatter, and how many they are.

    mean      float64 [p]
    square    float64 [p, p]
    scatter   float64 [p, p]: of trips about the mean
    freedom   trips - 1
    noise     1 / trips
    """

    mean: FloatArray
    square: FloatArray
    scatter: FloatArray
    freedom: float
    noise: float

    @classmethod
    def of(cls, trips: FloatArray) -> "StyleSums":
        """Return the sums of one vehicle from the means of its trips [T, p]."""
        mean = trips.mean(axis=0)
        apart = trips - mean
        count = len(trips)
        return cls(mean, np.outer(mean, mean), apart.T @ apart, count - 1, 1 / count)

    @classmethod
    def total(cls, vehicles: Iterable["StyleSums"]) -> "StyleSums":
        """Return the sums of a fleet."""
        parts: Sequence[StyleSums] = list(vehicles)
        return cls(
            *(np.sum([getattr(one, name) for one in parts], axis=0) for name in cls.__annotations__)
        )


@dataclass(frozen=True, eq=False)
class Directions:
    """Where the fleet's middle is [p], the directions [p, q], and how far vehicles spread [q]."""

    center: FloatArray
    axes: FloatArray
    spread: FloatArray

    def place(self, mean: FloatArray) -> FloatArray:
        """Where a vehicle with this mean [p] is, [q]."""
        return (mean - self.center) @ self.axes


def directions(total: StyleSums, vehicles: int) -> Directions:
    """Return the directions of a fleet, from its sums."""
    if not total.freedom:
        raise DataError(
            "Every vehicle has one training trip alone, so nobody can tell what is its style and "
            "what was that trip. Give vehicles more trips."
        )
    center = total.mean / vehicles
    between = total.square / vehicles - np.outer(center, center)
    within = total.scatter / total.freedom
    within = within + RIDGE * np.trace(within) / len(within) * np.eye(len(within))
    root = np.linalg.inv(np.linalg.cholesky(within))
    values, vectors = np.linalg.eigh(root @ between @ root.T)
    values, vectors = values[::-1], vectors[:, ::-1]
    signal = values - total.noise / vehicles
    kept = max(1, int((signal[:MOST] >= CLEAR * signal[0]).sum()))
    return Directions(center, root.T @ vectors[:, :kept], np.sqrt(np.maximum(values[:kept], 0)))
