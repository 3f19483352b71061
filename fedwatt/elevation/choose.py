"""Choice of slope prior and segment length, by the energy of validation trips.

The usual prior (grades of about 3 %, segments of 8 s) flattens mountains where a place was passed
only a few times. Sums do not depend on the grade of the prior, so the last ones serve all grades:

1. The map is learned with the usual prior.
2. Its last sums are solved with each of `GRADES`, and every vehicle's power model evaluates these
   maps on its validation trips. A vehicle uploads sums over its trips (`MapErrors`).
3. With the best grade, longer segments are tried, each only if the one before was better.

A vehicle evaluates the map that it would have: the shared one with its private nodes on top, by the
same prior, and with a metre of climb worth what mass and gravity allow, so that a map that is too
flat is not made up for by a higher price. Another prior is chosen only where the gain is clear: at
least 3 % of the absolute error, and a standard error over trips. Otherwise the map is the usual
one, bit for bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedwatt.elevation.elevation_map import ElevationMap, Prior, empty_map
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.normal_equations import NOTHING, Contribution, solve_map
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.survey import Survey, known_climb_m, map_errors_wh, segment_residual
from fedwatt.elevation.vehicle_map import private_map, vehicle_map
from fedwatt.telemetry.trip import FloatArray

GRADES = (0.05, 0.08, 0.12, 0.2)
"""Steeper priors that are tried."""
CLEAR = 0.03
SURE = 1.0

Exchange = Callable[[ElevationMap], Contribution]
"""Returns the fleet's sums over segments of the length of a map's prior, with residuals on top."""
Evaluator = Callable[[Sequence[ElevationMap]], "MapErrors"]
"""Returns the fleet's validation errors with shared maps, compared with the first."""


@dataclass(frozen=True, eq=False)
class MapErrors:
    """Sums over validation trips, in units of the vehicle's own mean error with the first map.

    error     [1]: absolute error with the first map
    gain      [maps - 1]: by how much that of each other map is less
    spread    [maps - 1]: sum over trips of the square of a trip's gain
    """

    error: FloatArray
    gain: FloatArray
    spread: FloatArray

    def __add__(self, other: "MapErrors") -> "MapErrors":
        return MapErrors(
            self.error + other.error, self.gain + other.gain, self.spread + other.spread
        )

    @property
    def best(self) -> int:
        """Number of the best map: the first, unless another is clearly better.

        >>> error = np.array([100.0])
        >>> MapErrors(error, np.array([2.0, 5.0]), np.array([1.0, 9.0])).best
        2
        >>> MapErrors(error, np.array([2.0, 5.0]), np.array([1.0, 49.0])).best
        0
        """
        clear = (self.gain >= CLEAR * self.error) & (self.gain >= SURE * np.sqrt(self.spread))
        gains = np.where(clear & (self.gain > 0), self.gain, 0.0)
        return int(gains.argmax()) + 1 if gains.any() else 0


def learn_with_prior(
    exchange: Exchange, evaluate: Evaluator, settings: ElevationSettings
) -> ElevationMap:
    """Return the shared map by the prior with the lowest validation error."""
    elevation_map = replace(empty_map(settings.grid), prior=settings.prior)
    elevation_map, sums = exchanged(exchange, elevation_map, 1 + settings.refreshes)
    if not settings.choose_prior:
        return elevation_map
    grades = [grade for grade in GRADES if grade > elevation_map.prior.grade]
    priors = [replace(elevation_map.prior, grade=grade) for grade in grades]
    steeper = [solved(settings.grid, sums, prior) for prior in priors]
    # Where the next steeper prior is no better at all, still steeper ones are not either.
    promising = steeper and evaluate([elevation_map, steeper[0]]).gain[0] > 0
    if promising and (best := evaluate([elevation_map, *steeper]).best):
        elevation_map, _ = exchanged(exchange, steeper[best - 1], settings.refreshes or 1)
    for length in settings.lengths[1:]:
        prior = replace(elevation_map.prior, segment_s=length)
        longer, _ = exchanged(exchange, replace(elevation_map, prior=prior), 1)
        if not evaluate([elevation_map, longer]).best:
            break
        elevation_map = longer
    return elevation_map


def exchanged(
    exchange: Exchange, elevation_map: ElevationMap, times: int
) -> tuple[ElevationMap, Contribution]:
    """Return a map after further exchanges with the same prior, and the sums of the last."""
    sums = NOTHING
    for _ in range(times):
        sums = exchange(elevation_map)
        elevation_map = solved(elevation_map.grid, sums, elevation_map.prior)
    return elevation_map, sums


def solved(grid: Grid, sums: Contribution, prior: Prior) -> ElevationMap:
    """Return the map that solves these sums with a prior."""
    return replace(solve_map(grid, sums, prior.grade), prior=prior)


def map_errors(
    survey: Survey, shared: Sequence[ElevationMap], settings: ElevationSettings
) -> MapErrors:
    """Return the validation errors of a vehicle for shared maps with its private map on top.

    Only segments whose climb is known with the first map count.
    """
    evaluated = survey.validation
    zeros = np.zeros(len(shared) - 1)
    nothing = MapErrors(np.zeros(1), zeros, zeros)
    if evaluated is None:
        return nothing
    maps = list(shared)
    if settings.private:
        maps[0] = vehicle_map(survey, shared[0], settings)
        for place, elevation_map in enumerate(shared[1:], start=1):
            cut = survey.cut(elevation_map.prior.segment_s)
            residuals = segment_residual(cut, maps[0])
            maps[place] = private_map(cut, residuals, elevation_map, elevation_map.prior.grade)
    covered = known_climb_m(evaluated, maps[0])[1]
    if not covered.any():
        return nothing
    errors = [np.abs(map_errors_wh(survey, each, at_face_value=True)[covered]) for each in maps]
    usual = max(float(errors[0].mean()), 1e-12)
    trips = np.array([np.bincount(evaluated.trip[covered], each) for each in errors]) / usual
    saved = trips[0] - trips[1:]
    return MapErrors(trips[0].sum(keepdims=True), saved.sum(axis=1), (saved**2).sum(axis=1))
