"""Differential privacy for the map: clipped contributions, noise on what is published.

Two fleets are neighbours if one vehicle with all its trips is in one and not in the other. What the
server publishes is a fixed number of vectors, each a sum over vehicles of vectors no longer than
its bound, plus Gaussian noise of `noise_multiplier` times that bound in every coordinate:

    counts    1 for each node a vehicle drove, for at most `most_nodes` nodes: length ≤ √most_nodes
    sums      for each pair of nodes the weight W of the segments between them, and W times the
              metres they climb, in units of 3 m; scaled down to length ≤ `clip`

Coordinates must not depend on the data either: counts are over all nodes of a stated service area,
sums over all pairs of published nodes that one segment can join. Each vector is one Gaussian
mechanism (`privacy.accounting` adds them up). Here a segment runs from the node nearest its start
to the node nearest its end. That is coarser than the bilinear sums, but weights that noise made
negative can be set to 0 without harm, where noise in AᵀA would leave equations without a solution.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.grid import CORNERS, Grid, Pairs, find
from fedwatt.elevation.normal_equations import Contribution, solve_map, touched_nodes
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.survey import Residual, Survey
from fedwatt.randomness import SystemNoise, generator
from fedwatt.telemetry.trip import FloatArray, IntArray

CLIMB_M = 3.0
"""Metres that climbs are measured in, so that noise of one size suits weights and climbs."""
SURELY = 4.0
"""Standard deviations that noise alone exceeds once in 30,000 times; what exceeds them is kept."""
Draws = Callable[..., np.random.Generator | SystemNoise]
"""A source of noise for a purpose: "counts", or "sums" and the number of the exchange."""


@dataclass(frozen=True, eq=False)
class PairSums:
    """Over agreed pairs of nodes [pairs]: weights, 1/m², and weighted climbs, 1/m."""

    weight: FloatArray
    climb: FloatArray

    @property
    def length(self) -> float:
        """‖(W, W·climb / 3 m)‖."""
        return float(np.sqrt((self.weight**2).sum() + ((self.climb / CLIMB_M) ** 2).sum()))

    def clipped(self, clip: float) -> "PairSums":
        """Return the equations scaled down to a norm of at most `clip`."""
        scale = min(1.0, clip / max(self.length, 1e-300))
        return replace(self, weight=scale * self.weight, climb=scale * self.climb)


def pair_sums(survey: Survey, residuals: Residual, nodes: IntArray, pairs: Pairs) -> PairSums:
    """Return a vehicle's segments between published nodes, summed by pair of nodes."""
    rows = np.arange(len(survey.keys))
    ends = survey.keys[rows, survey.weights[:, :CORNERS].argmax(axis=1)]
    starts = survey.keys[rows, CORNERS + survey.weights[:, CORNERS:].argmin(axis=1)]
    (end, end_known) = find(nodes, ends)
    (start, start_known) = find(nodes, starts)
    code = np.minimum(start, end) * len(nodes) + np.maximum(start, end)
    at, agreed = find(pairs[0] * len(nodes) + pairs[1], code)
    used = survey.placed & end_known & start_known & agreed & (start != end)
    precision = (residuals.slope_wh_per_m / residuals.noise_wh)[used]
    climbs = precision * (residuals.residual_wh / residuals.noise_wh)[used]
    # A pair is written from its lower to its higher place; driven the other way, climbs turn.
    climbs = np.where(start[used] < end[used], climbs, -climbs)
    return PairSums(
        _summed(at[used], precision**2, len(pairs[0])), _summed(at[used], climbs, len(pairs[0]))
    )


def _summed(at: IntArray, values: FloatArray, places: int) -> FloatArray:
    return np.bincount(at, values, places).astype(np.float64)


def counted_nodes(survey: Survey, most_nodes: int) -> IntArray:
    """Return the nodes a vehicle counts for: those it drove, the most driven ones if there are
    more.
    """
    nodes = touched_nodes(survey)
    if len(nodes) <= most_nodes:
        return nodes
    used = survey.placed[:, None] & (survey.weights != 0)
    at, _ = find(nodes, survey.keys[used])
    passes = np.bincount(at, minlength=len(nodes))
    return np.sort(nodes[np.argsort(-passes, kind="stable")[:most_nodes]])


def seeded(seed: int) -> Draws:
    """Return noise from a seed, for simulations."""
    return lambda *purpose: generator(seed, "terrain noise", *purpose)


def surely_driven(
    counts: FloatArray, area: IntArray, settings: ElevationSettings, draws: Draws
) -> tuple[IntArray, FloatArray]:
    """Return the nodes that surely have k vehicles, and their counts, from noisy counts [area]."""
    deviation = settings.noise_multiplier * sqrt(settings.most_nodes)
    counts = counts + deviation * draws("counts").standard_normal(len(counts))
    sure = counts >= settings.minimum_vehicles + SURELY * deviation
    return area[sure], counts[sure]


def with_noise(
    total: PairSums, settings: ElevationSettings, exchange: int, draws: Draws
) -> PairSums:
    """Return a sum over vehicles with noise on every coordinate.

    The standard deviation is z · clip of a weight and 3 m · z · clip of a climb, which is z · clip
    in the units that a vehicle's sums are clipped in.
    """
    deviation = settings.noise_multiplier * settings.clip
    rng = draws("sums", exchange)
    pairs = len(total.weight)
    weight = total.weight + deviation * rng.standard_normal(pairs)
    climb = total.climb + CLIMB_M * deviation * rng.standard_normal(pairs)
    return PairSums(weight, climb)


def map_from_noisy_sums(
    grid: Grid,
    nodes: IntArray,
    counts: FloatArray,
    pairs: Pairs,
    sums: PairSums,
    settings: ElevationSettings,
) -> ElevationMap:
    """Return the map that noisy counts and sums make, from pairs that cannot be noise alone."""
    sure = sums.weight > SURELY * settings.noise_multiplier * settings.clip
    weight, climb = (np.where(sure, values, 0) for values in (sums.weight, sums.climb))
    vehicles = np.round(counts).astype(np.int64)
    published = replace(equations(nodes, pairs, weight, climb), passes=counts, vehicles=vehicles)
    return solve_map(grid, published, settings.prior_grade)


def equations(nodes: IntArray, pairs: Pairs, weight: FloatArray, climb: FloatArray) -> Contribution:
    """Return normal equations of Σ W (z_second - z_first - climb/W)² over pairs of nodes."""
    count = len(nodes)
    first, second = pairs
    diagonal = np.bincount(first, weight, count) + np.bincount(second, weight, count)
    apart = (weight > 0) & (first != second)
    every = np.arange(count)
    return Contribution(
        nodes,
        np.concatenate([every, first[apart]]).astype(np.int32),
        np.concatenate([every, second[apart]]).astype(np.int32),
        np.concatenate([diagonal, -weight[apart]]),
        _summed(second, climb, count) - _summed(first, climb, count),
        np.zeros(count),
        np.zeros(count, dtype=np.int64),
    )
