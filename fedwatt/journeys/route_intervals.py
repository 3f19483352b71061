"""Prediction intervals of routes: conformal by length, from counts that add over a fleet.

A trip's error is measured against the prediction, (y - ŷ) / (ŷ + 15 b), as if the trip itself had
taught nothing; b is the fleet's mean absolute error by σ = D + 2 km, and keeps intervals of small
predictions from vanishing. Cold and slopes make a trip dear and its error large alike, so these
intervals fit closer than some in proportion to σ. Vehicles count their errors in narrow bins, by
length of route, and the counts add.

Three distributions are kept: of vehicles that are in the fleet, of the same vehicles as unseen ones
(coefficients and driving field without them) and on unknown ground (no field, level road). Errors
of the first are divided by the vehicle's size s_v, the shrunk mean of its other trips' absolute
errors (`vehicle_sizes`). On a route with features x a vehicle's quantiles are

    ρ s_v q_insider + (1 - ρ) q_unseen,    ρ = 1 - xᵀ C x / xᵀ diag(τ²) x

with q_insider those of the *other* vehicles' divided errors. ρ is the share of the variance of
xᵀβ_v that the vehicle's own trips have removed (`mixed_effects`): 0 without trips, near 1 after
many, and about one half on a summer's day for a vehicle that has been driven in winter only.
"""

from dataclasses import dataclass

import numpy as np

from fedwatt.telemetry.trip import FloatArray, IntArray

BASE_KM = 2.0
CLASSES_KM = (4.0, 8.0)
"""Where classes of length end; the last has no end."""
MIDDLES_KM = (3.0, 6.0, 12.0)
"""Between these lengths bars pass from one class to the next."""
BASE_ERRORS = 15.0
"""Chosen by the CRPS of training trips, each as if it had taught nothing."""
BINS = 320
WIDEST = 2.0
"""Relative errors are counted up to this; beyond, in the last bin."""
LEVELS = np.arange(1, 100) / 100
USUAL_ERROR = 0.12
"""Mean absolute relative error to which a vehicle's is shrunk."""
SHRINKAGE = 5.0
"""Trips that `USUAL_ERROR` is worth."""
LEAST_TRIPS = 30.0
"""Fewer errors do not say where 90 % of others lie: the outermost of 30 hold 94 %."""


def sigma(metres: FloatArray | float) -> FloatArray:
    """Return σ of a route, km: it grows with length and has a minimum for short routes."""
    return np.asarray(metres, dtype=np.float64) / 1000 + BASE_KM


def length_class(kilometres: FloatArray) -> IntArray:
    """Return the class of a route's length: 0 below 4 km, 1 below 8 km, else 2."""
    return np.searchsorted(CLASSES_KM, kilometres, side="right").astype(np.int64)


def relative_errors(measured: FloatArray, predicted: FloatArray, noise: float) -> FloatArray:
    """Return (y - ŷ) / (ŷ + 15 b) of trips; `noise` is b."""
    return (measured - predicted) / (np.maximum(predicted, 0.0) + BASE_ERRORS * noise)


def error_counts(errors: FloatArray, kilometres: FloatArray) -> FloatArray:
    """Return the counts of relative errors by bin and class of length, [3 · 320]."""
    place = np.floor((np.clip(errors, -WIDEST, WIDEST) / WIDEST + 1) / 2 * BINS).astype(np.int64)
    bins = length_class(kilometres) * BINS + np.clip(place, 0, BINS - 1)
    return np.bincount(bins, minlength=len(MIDDLES_KM) * BINS).astype(np.float64)


def quantiles_of(counts: FloatArray, levels: FloatArray) -> FloatArray:
    """Return the relative errors at `levels` [n] between 0 and 1 from counts in bins [320]."""
    grown = np.concatenate([[0.0], np.cumsum(counts)]) / max(counts.sum(), 1e-300)
    last = np.searchsorted(grown, grown[-1]) + 1  # beyond it nothing is counted
    return np.interp(levels, grown[:last], np.linspace(-WIDEST, WIDEST, BINS + 1)[:last])


def filled(counts: FloatArray, other_counts: FloatArray) -> FloatArray:
    """Add `other_counts`, scaled, to `counts` of fewer than 30 trips, up to 30 trips in all.

    >>> filled(np.array([10.0, 10.0]), np.array([0.0, 40.0])).tolist()
    [10.0, 20.0]
    """
    lacks = min(max(LEAST_TRIPS - counts.sum(), 0.0), other_counts.sum())
    total: FloatArray = counts + other_counts / max(other_counts.sum(), 1.0) * lacks
    return total


def vehicle_sizes(errors: FloatArray) -> FloatArray:
    """Return s_v [trips] relative to the usual, for each trip from the vehicle's other trips.

    >>> vehicle_sizes(np.array([0.12, 0.72])).round(3)  # (5 · 0.12 + 0.72) / 6, over 0.12; and 1
    array([1.833, 1.   ])
    """
    return np.array([vehicle_size(np.delete(errors, trip)) for trip in range(len(errors))])


def vehicle_size(errors: FloatArray) -> float:
    """Return s_v for the next trip, from all own trips.

    >>> vehicle_size(np.array([])), round(vehicle_size(np.full(5, 0.24)), 3)
    (1.0, 1.5)
    """
    total = SHRINKAGE * USUAL_ERROR + float(np.abs(errors).sum())
    return total / ((SHRINKAGE + len(errors)) * USUAL_ERROR)


def quantiles(fleet: FloatArray) -> FloatArray:
    """Return the relative errors at 99 levels by class of length, [3, 99], from counts [3 · 320].

    A class of few trips takes the others' errors for those that it lacks. The middle is taken off:
    a prediction is the middle of its interval.
    """
    everybody = fleet.reshape(len(MIDDLES_KM), BINS)
    table = []
    for shared in everybody:
        counts = filled(shared, everybody.sum(axis=0) - shared)
        # As conformal prediction has it, n trips leave room for one more, half of it at each end.
        room = 0.5 / (counts.sum() + 1)
        levels = np.clip(LEVELS + np.sign(LEVELS - 0.5) * room, 0.0, 1.0)
        table.append(quantiles_of(counts, levels))
    errors = np.array(table)
    return errors - errors[:, len(LEVELS) // 2, None]


@dataclass(frozen=True, eq=False)
class Bars:
    """Quantiles of relative errors, each [3, 99], and how much of a route the vehicle's trips tell.

    vehicle     s_v q_insider
    unseen      of vehicles without trips of their own
    unknown     on unknown ground
    noise       b, a single number
    covariance  C [p, p] of coefficients of features
    prior       diag C without trips, τ² [p]
    """

    vehicle: FloatArray
    unseen: FloatArray
    unknown: FloatArray
    noise: FloatArray
    covariance: FloatArray
    prior: FloatArray

    def resolved(self, x: FloatArray) -> FloatArray:
        """Return ρ [n] of routes with features x [n, p]."""
        left = ((x @ self.covariance) * x).sum(axis=1)
        total = x**2 @ self.prior
        rho: FloatArray = (total - left) / np.maximum(total, 1e-300)
        return rho.clip(0.0, 1.0)

    def errors(
        self, metres: FloatArray, predicted: FloatArray, x: FloatArray, unknown_share: float
    ) -> FloatArray:
        """Return errors y - ŷ at 99 levels, [n, 99], for routes of `metres` [n], predictions [n]
        and features x [n, p].
        """
        kilometres = np.asarray(metres) / 1000
        vehicle, unseen, unknown = (
            np.stack([np.interp(kilometres, MIDDLES_KM, column) for column in table.T], axis=-1)
            for table in (self.vehicle, self.unseen, self.unknown)
        )
        rho = self.resolved(x)[:, None]
        known = rho * vehicle + (1 - rho) * unseen
        wider = np.where(LEVELS < 0.5, np.minimum(known, unknown), np.maximum(known, unknown))
        unit = np.maximum(predicted, 0.0) + BASE_ERRORS * self.noise
        errors: FloatArray = ((1 - unknown_share) * known + unknown_share * wider) * unit[:, None]
        return errors

    @property
    def wider(self) -> float:
        """Return how many times as wide an unseen vehicle's 90 % intervals are as this one's.

        Never below 1: a member's errors are divided by its size, which is small in exact fleets.
        """
        low, high = np.searchsorted(LEVELS, (0.05, 0.95))
        vehicle, unseen = (table[:, high] - table[:, low] for table in (self.vehicle, self.unseen))
        return max(float((unseen / np.maximum(vehicle, 1e-12)).mean()), 1.0)


def interval(at_levels: FloatArray, share: float) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the central interval `share` from values at 99 levels [..., 99]."""
    ends = ((1 - share) / 2, (1 + share) / 2)
    low, high = (np.searchsorted(LEVELS, end - 1e-9) for end in ends)
    return at_levels[..., low], at_levels[..., high]
