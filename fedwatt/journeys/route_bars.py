"""Error bars of routes: conformal by length of way, from counts that add over a fleet.

A trip's error is measured against what was predicted, (y - ŷ) / (ŷ + 15 b), as if the trip itself
had taught nothing; b is the fleet's mean absolute error by σ = D + 2 km, and keeps bars of small
predictions from vanishing. Cold and hills make a trip dear and its error large alike, so these bars
fit closer than bars in proportion to σ. Vehicles count theirs in narrow bins, by length of way; the
counts add up to the fleet's distribution. On board a vehicle's own errors are counted in with the
fleet's, which weigh as many trips as they are, and 100 at most: a vehicle of few trips has the
fleet's bars, one of many its own.

Three distributions are kept: of vehicles that are in the fleet, of the same vehicles as newcomers
(coefficients and field without them) and on unknown ground (no field, level road).
"""

from collections.abc import Sequence
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
FLEET_TRIPS = 100.0
LEAST_TRIPS = 30.0
"""Fewer errors do not say where 90 % of others lie: the outermost of 30 hold 94 %."""


def sigma(metres: FloatArray | float) -> FloatArray:
    """σ of a way, km: errors grow with it, and short ways have some of their own."""
    return np.asarray(metres, dtype=np.float64) / 1000 + BASE_KM


def length_class(kilometres: FloatArray) -> IntArray:
    """0 for ways below 4 km, 1 below 8 km, 2 for longer ones."""
    return np.searchsorted(CLASSES_KM, kilometres, side="right").astype(np.int64)


def relative_errors(measured: FloatArray, predicted: FloatArray, noise: float) -> FloatArray:
    """(y - ŷ) / (ŷ + 15 b) of trips; `noise` is b."""
    return (measured - predicted) / (np.maximum(predicted, 0.0) + BASE_ERRORS * noise)


def error_counts(errors: FloatArray, kilometres: FloatArray) -> FloatArray:
    """How many relative errors fall into each bin of each class of length, [3 · 320]."""
    classes = length_class(kilometres)
    each = [counted_errors(errors[classes == one]) for one in range(len(MIDDLES_KM))]
    return np.concatenate(each)


def counted_errors(errors: FloatArray) -> FloatArray:
    """How many relative errors fall into each bin, [320]."""
    place = np.floor((np.clip(errors, -WIDEST, WIDEST) / WIDEST + 1) / 2 * BINS).astype(np.int64)
    return np.bincount(np.clip(place, 0, BINS - 1), minlength=BINS).astype(np.float64)


def quantiles_of(counts: FloatArray, levels: FloatArray) -> FloatArray:
    """Relative errors at `levels` [n] of 0 to 1, from counts in bins [320]."""
    grown = np.concatenate([[0.0], np.cumsum(counts)]) / max(counts.sum(), 1e-300)
    last = np.searchsorted(grown, grown[-1]) + 1  # beyond it nothing is counted
    return np.interp(levels, grown[:last], np.linspace(-WIDEST, WIDEST, BINS + 1)[:last])


def filled(counts: FloatArray, others: FloatArray) -> FloatArray:
    """Counts, and others' in proportion for what these lack of 30 trips, as far as there are any.

    >>> filled(np.array([10.0, 10.0]), np.array([0.0, 40.0])).tolist()
    [10.0, 20.0]
    """
    lacks = min(max(LEAST_TRIPS - counts.sum(), 0.0), others.sum())
    found: FloatArray = counts + others / max(others.sum(), 1.0) * lacks
    return found


def quantiles(fleet: FloatArray, own: FloatArray) -> FloatArray:
    """Relative errors at 99 levels by class of length, [3, 99], from counts [3 · 320] of both.

    A class of few trips takes the others' errors for those that it lacks. The middle is taken off:
    what is predicted is the middle of what is expected.
    """
    shape = (len(MIDDLES_KM), BINS)
    table = []
    everybody = fleet.reshape(shape)
    for shared, mine in zip(everybody, own.reshape(shape), strict=True):
        base = filled(shared, everybody.sum(axis=0) - shared)
        weight = min(base.sum(), FLEET_TRIPS)
        counts = base / max(base.sum(), 1.0) * weight + mine
        # As many conformal predictors do: n trips leave room for one more, half of it at each end.
        room = 0.5 / (counts.sum() + 1)
        levels = np.clip(LEVELS + np.sign(LEVELS - 0.5) * room, 0.0, 1.0)
        table.append(quantiles_of(counts, levels))
    found = np.array(table)
    return found - found[:, len(LEVELS) // 2, None]


@dataclass(frozen=True, eq=False)
class Bars:
    """Quantiles of relative errors, each [3, 99]: of the vehicle, of insiders, on unknown ground.

    `noise` is b, a single number.
    """

    own: FloatArray
    insider: FloatArray
    unknown: FloatArray
    noise: FloatArray

    def errors(self, metres: FloatArray, predicted: FloatArray, unknown_share: float) -> FloatArray:
        """Errors y - ŷ at 99 levels for ways of `metres` [n] and predictions [n], [n, 99]."""
        wider = np.where(LEVELS < 0.5, np.minimum(self.own, self.unknown), self.own)
        wider = np.where(LEVELS > 0.5, np.maximum(self.own, self.unknown), wider)
        table = (1 - unknown_share) * self.own + unknown_share * wider
        kilometres = np.asarray(metres) / 1000
        between = [np.interp(kilometres, MIDDLES_KM, column) for column in table.T]
        unit = np.maximum(predicted, 0.0) + BASE_ERRORS * self.noise
        return np.stack(between, axis=-1) * unit[:, None]

    @property
    def wider(self) -> float:
        """How many times as wide the vehicle's 90 % bars are as those of vehicles in the fleet."""
        low, high = np.searchsorted(LEVELS, (0.05, 0.95))
        own, usual = (table[:, high] - table[:, low] for table in (self.own, self.insider))
        return float((own / np.maximum(usual, 1e-12)).mean())


def interval(at_levels: FloatArray, share: float) -> tuple[FloatArray, FloatArray]:
    """Low and high end of the middle `share` from values at 99 levels [..., 99]."""
    ends = ((1 - share) / 2, (1 + share) / 2)
    low, high = (np.searchsorted(LEVELS, end - 1e-9) for end in ends)
    return at_levels[..., low], at_levels[..., high]


def crps(at_levels: Sequence[float] | FloatArray, measured: float) -> float:
    """Continuous ranked probability score of a prediction at 99 levels, in its unit.

    Twice the mean pinball loss over levels (Gneiting and Raftery, JASA 102, 2007).

    >>> crps(np.full(99, 5.0), 7.0)  # a point: the absolute error
    2.0
    """
    off = measured - np.asarray(at_levels, dtype=np.float64)
    return float(2 * np.maximum(LEVELS * off, (LEVELS - 1) * off).mean())
