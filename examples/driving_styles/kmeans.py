"""k-means among vehicles from sums alone: no vehicle tells where it is, nor in which cluster.

Each vehicle has one point. The server sends centres; every vehicle finds the nearest one and adds

    1       to the count of that centre's cluster
    point   to its sum, where at least `fewest` vehicles were counted
    d²      to the squared distances of all

so that what the server has are totals (Lloyd, "Least squares quantization in PCM", 1982, with the
assignment on board). A centre that fewer vehicles choose is drawn anew: a total over one or two
would say where these are. Centres begin at random within the cloud that is known from sums.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator

from fedwatt.telemetry.trip import FloatArray, IntArray

STARTS: Final = 10
"""Sets of centres that are tried; the tightest clusters are kept."""
ROUNDS: Final = 30
"""Most exchanges of one set of centres."""


@dataclass(frozen=True, eq=False)
class Clustering:
    """Centres [k, dimensions], and the squared distances of all vehicles to theirs, added up."""

    centres: FloatArray
    within: float

    def of(self, points: FloatArray) -> IntArray:
        """Return the cluster of each point [N, dimensions], as each vehicle computes it."""
        own: IntArray = nearest(points, self.centres[None])[0][0]
        return own


def nearest(points: FloatArray, centres: FloatArray) -> tuple[IntArray, FloatArray]:
    """Nearest of k centres and squared distance to it, both [S, N], for S sets of centres.

    >>> nearest(np.array([[0.0], [5.0]]), np.array([[[1.0], [4.0]]]))
    (array([[0, 1]]), array([[1., 1.]]))
    """
    squares = ((points[None, :, None, :] - centres[:, None]) ** 2).sum(axis=-1)
    return squares.argmin(axis=-1), squares.min(axis=-1)


def k_means(
    points: FloatArray, spread: FloatArray, k: int, rng: Generator, *, fewest: int
) -> Clustering | None:
    """Return the tightest k clusters of `fewest` or more points [N, dimensions]; None: none.

    `spread` [dimensions] is the standard deviation of all points, whose mean is 0.
    """

    def anew(sets: int) -> FloatArray:
        return rng.normal(size=(sets, k, points.shape[1])) * spread

    centres = anew(STARTS)
    for _ in range(ROUNDS):
        own, _ = nearest(points, centres)
        member = own[..., None] == np.arange(k)  # [S, N, k]
        counts = member.sum(axis=1)
        known = (counts >= fewest)[..., None]
        sums = np.einsum("snk,nd->skd", member.astype(float), points)
        moved = np.where(known, sums / np.maximum(counts, 1)[..., None], anew(len(centres)))
        if np.array_equal(moved, centres):
            break
        centres = moved
    own, squares = nearest(points, centres)
    counts = (own[..., None] == np.arange(k)).sum(axis=1)
    within = np.where((counts >= fewest).all(axis=1), squares.sum(axis=1), np.inf)
    best = int(within.argmin())
    return Clustering(centres[best], float(within[best])) if np.isfinite(within[best]) else None
