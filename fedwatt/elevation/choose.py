"""Choice of slope prior and segment length, by the energy of validation trips.

The usual prior (grades of about 3 %, segments of 8 s) flattens mountains where a place was passed
only a few times. Sums do not depend on the grade of the prior, so the last ones serve all grades:

1. The field is learned with the usual prior.
2. Its last sums are solved with each of `GRADES`, and every vehicle's power model evaluates these
   fields on its validation trips. What a vehicle hands up are sums over its trips (`Verdict`).
3. With the grade found, longer segments are tried, each only if the one before was better.

A vehicle evaluates the field that it would have: the shared one with its private ground on top, by
the same prior, and with a metre of climb worth what mass and gravity allow, so that flat hills are
not made up for by a higher price. Another prior is kept only where the gain is clear: at least 3 %
of the absolute error, and a standard error over trips. Otherwise the field is the usual one, bit
for bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedwatt.elevation.elevation_map import Field, Prior, empty_field
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.measured import segment_residual
from fedwatt.elevation.power import field_errors_wh
from fedwatt.elevation.private import own_field, private_field
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.solve import solve_field
from fedwatt.elevation.statistics import NOTHING, Contribution
from fedwatt.elevation.survey import Survey, known_climb_m
from fedwatt.telemetry.trip import FloatArray

GRADES = (0.05, 0.08, 0.12, 0.2)
"""Steeper priors that are tried."""
CLEAR = 0.03
SURE = 1.0

Exchange = Callable[[Field], Contribution]
"""The fleet's sums over segments of the length of a field's prior, with residuals on top of it."""
Evaluator = Callable[[Sequence[Field]], "Verdict"]
"""What the fleet's validation trips say of shared fields, compared with the first."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """Sums over validation trips, in units of the vehicle's own mean error with the first field.

    error     [1]: absolute error with the first field
    gain      [fields - 1]: by how much that of each other field is less
    spread    [fields - 1]: sum over trips of the square of a trip's gain
    """

    error: FloatArray
    gain: FloatArray
    spread: FloatArray

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(self.error + other.error, self.gain + other.gain, self.spread + other.spread)

    @property
    def best(self) -> int:
        """Number of the field to keep: the first, unless another is clearly better.

        >>> error = np.array([100.0])
        >>> Verdict(error, np.array([2.0, 5.0]), np.array([1.0, 9.0])).best
        2
        >>> Verdict(error, np.array([2.0, 5.0]), np.array([1.0, 49.0])).best
        0
        """
        clear = (self.gain >= CLEAR * self.error) & (self.gain >= SURE * np.sqrt(self.spread))
        gains = np.where(clear & (self.gain > 0), self.gain, 0.0)
        return int(gains.argmax()) + 1 if gains.any() else 0


def learn_with_prior(
    exchange: Exchange, evaluate: Evaluator, grid: Grid, settings: ElevationSettings
) -> tuple[Field, Contribution]:
    """Return the shared field by the prior that validation trips bear out, and the sums behind
    it.
    """
    field = replace(empty_field(grid), prior=settings.prior)
    field, sums = exchanged(exchange, field, 1 + settings.refreshes)
    if not settings.chooses:
        return field, sums
    grades = [grade for grade in GRADES if grade > field.prior.grade]
    steeper = [solved(grid, sums, replace(field.prior, grade=grade)) for grade in grades]
    # Where the next steeper prior is no better at all, still steeper ones are not either.
    promising = steeper and evaluate([field, steeper[0]]).gain[0] > 0
    if promising and (best := evaluate([field, *steeper]).best):
        field, sums = exchanged(exchange, steeper[best - 1], settings.refreshes or 1)
    for length in settings.lengths[1:]:
        prior = replace(field.prior, segment_s=length)
        longer, other_sums = exchanged(exchange, replace(field, prior=prior), 1)
        if not evaluate([field, longer]).best:
            break
        field = longer
        sums = other_sums
    return field, sums


def exchanged(exchange: Exchange, field: Field, times: int) -> tuple[Field, Contribution]:
    """Return a field after further exchanges with the same prior, and the sums of the last."""
    sums = NOTHING
    for _ in range(times):
        sums = exchange(field)
        field = solved(field.grid, sums, field.prior)
    return field, sums


def solved(grid: Grid, sums: Contribution, prior: Prior) -> Field:
    """Return the field of these sums by a prior, which it remembers."""
    return replace(solve_field(grid, sums, prior.grade), prior=prior)


def verdict(one: Survey, shared: Sequence[Field], settings: ElevationSettings) -> Verdict:
    """Return the validation errors of a vehicle for shared maps with its private map on top.

    Segments count whose climb is known with the first.
    """
    evaluated = one.validation
    none = np.zeros(len(shared) - 1)
    nothing = Verdict(np.zeros(1), none, none)
    if evaluated is None:
        return nothing
    fields = _with_own_ground(one, shared, settings) if settings.private else shared
    known = known_climb_m(evaluated, fields[0])[1]
    if not known.any():
        return nothing
    errors = [np.abs(field_errors_wh(one, own, at_face_value=True)[known]) for own in fields]
    usual = max(float(errors[0].mean()), 1e-12)
    trips = np.array([np.bincount(evaluated.trip[known], own) for own in errors]) / usual
    saved = trips[0] - trips[1:]
    return Verdict(trips[0].sum(keepdims=True), saved.sum(axis=1), (saved**2).sum(axis=1))


def _with_own_ground(
    one: Survey, shared: Sequence[Field], settings: ElevationSettings
) -> list[Field]:
    """Return the shared fields, each with the vehicle's private ground by the same prior."""
    fields = [own_field(one, shared[0], settings)]
    for field in shared[1:]:
        cut = one.cut(field.prior.segment_s)
        own = segment_residual(cut, fields[0])
        fields.append(private_field(cut, own, field, field.prior.grade))
    return fields
