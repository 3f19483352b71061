"""How many clusters there are, and whether there are any: against one cloud without clusters.

k-means finds clusters in anything. So what it explains, 1 - W_k/W_1 with W_k the squared distances
within k clusters, is held against what it explains in as many points drawn evenly from one box with
the fleet's own spread, which needs no vehicle (Tibshirani, Walther and Hastie, "Estimating the
number of clusters in a data set via the gap statistic", 2001). Even density is the hardest case of
a single group: a cloud that is denser in its middle looks less like two. The number of clusters is
the one with most above that, in standard deviations over the draws; the probability is that of a
draw with as much above at *any* number of clusters.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator

from examples.driving_styles.kmeans import Clustering, k_means
from fedwatt.telemetry.trip import FloatArray, IntArray

DRAWS: Final = 99


@dataclass(frozen=True, eq=False)
class Explained:
    """For 2, 3, ... clusters at most: what they explain [k - 1], and the clusters themselves."""

    shares: FloatArray
    clusterings: tuple[Clustering | None, ...]


def explained(
    points: FloatArray, spread: FloatArray, most: int, rng: Generator, *, fewest: int
) -> Explained:
    """Return the variance of points [N, q] that up to `most` clusters explain."""
    whole = float((points**2).sum())
    shares = []
    best = 0.0
    clusterings = []
    for k in range(2, most + 1):
        found = k_means(points, spread, k, rng, fewest=fewest)
        if found is not None:
            best = max(best, 1 - found.within / whole)
        shares.append(best)
        clusterings.append(found)
    return Explained(np.array(shares), tuple(clusterings))


@dataclass(frozen=True, eq=False)
class Excess:
    """Standard deviations above an even box for 2, 3, ... clusters, and the chance of as much."""

    above: FloatArray
    probability: float


def excess(
    found: Explained, count: int, spread: FloatArray, rng: Generator, *, fewest: int
) -> Excess:
    """Compare a clustering of `count` points with those of even boxes of this spread [q]."""
    drawn = []
    most = len(found.shares) + 1
    for _ in range(DRAWS):
        even = rng.uniform(-1, 1, (count, len(spread))) * np.sqrt(3) * spread
        even -= even.mean(axis=0)
        drawn.append(explained(even, even.std(axis=0), most, rng, fewest=fewest).shares)
    null = np.array(drawn)
    middle = null.mean(axis=0)
    width = np.maximum(null.std(axis=0), 1e-9)
    above = (found.shares - middle) / width
    chance = ((null - middle) / width).max(axis=1)
    return Excess(above, float((1 + (chance >= above.max()).sum()) / (1 + DRAWS)))


def adjusted_rand(one: IntArray, other: IntArray) -> float:
    """Return the adjusted Rand index of two groupings [N]: 1 if equal, about 0 by chance.

    Hubert and Arabie, "Comparing partitions", 1985. All that it needs of vehicles is how many are
    in each pair of groups.

    >>> adjusted_rand(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    1.0
    >>> round(adjusted_rand(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])), 6)
    -0.5
    """
    table = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(table, (one, other), 1)

    def pairs(counts: FloatArray) -> float:
        return float((counts * (counts - 1) / 2).sum())

    rows = pairs(table.sum(axis=1))
    columns = pairs(table.sum(axis=0))
    expected = rows * columns / pairs(np.array([len(one)]))
    most = (rows + columns) / 2
    return 1.0 if most == expected else (pairs(table) - expected) / (most - expected)
