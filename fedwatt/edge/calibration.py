"""Error bars that a vehicle works out from its own trips: split-conformal, normalised, by trip.

Lei et al., "Distribution-free predictive inference for regression", JASA 2018, eq. 11: a score is
the absolute error over a scale that is estimated from training trips, and the interval is the
prediction ± scale × the (1 - α) quantile of the scores of validation trips.

Trips are exchangeable, windows are not: they overlap. So a trip counts once, whatever its length
(Lee, Barber and Willett, "Distribution-free inference with hierarchical data", 2023). For whole
trips that is ordinary split-conformal prediction. For windows every trip has the same weight, and
the finite-sample correction 1 + 1/n uses the number of *independent* scores that the trips are
worth: the number of trips if each is covered wholly or not at all, more if they are alike.

A level of 90 % needs nine independent scores. A vehicle with fewer validation trips adds its
training trips: `source` says so. Their errors are those of a model that has seen them, so their
scores are stretched by how much larger those of validation trips are in the mean (`alike`).

A vehicle with an elevation map has narrow intervals. Windows whose climb is unknown have larger
errors and intervals of their own: calibrated on the same trips, as if no climb of theirs were
known. For part of a trip the two are weighed by the time that each of them applied to
(`PredictionIntervals`). Where climb was often unknown in the trips that calibrated, that is in
both, and mixed trips get intervals that are too wide rather than too narrow. Needs numpy only.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.edge.card import ModelCard
from fedwatt.errors import DataError
from fedwatt.journeys.filter import TripPrior, in_trip
from fedwatt.settings import from_table
from fedwatt.telemetry.trip import BoolArray, FloatArray

LEVEL = 0.9
LEVELS = (LEVEL, 0.8, 0.5)
"""Levels of error bars, of which a vehicle with few trips gets the highest that they allow."""
# A scale never falls below this share of the mean error.
FLOOR = 0.2
CAUTION = 5.0


@dataclass(frozen=True, eq=False)
class CalibrationTrip:
    """Predicted and measured energies of one recorded trip.

    windows_wh, measured_wh    energy of every window, [windows]
    speed_mps                  mean speed of every window, [windows]
    trip_wh, trip_measured_wh  energy of the whole trip
    seconds                    its length
    cold                       its coldness (`journeys.filter.coldness`)
    """

    windows_wh: FloatArray
    measured_wh: FloatArray
    speed_mps: FloatArray
    trip_wh: float
    trip_measured_wh: float
    seconds: int
    cold: float = 0.0

    def in_trip_scores(self, prior: TripPrior, window: int) -> FloatArray:
        """Return absolute errors of windows corrected by the trip so far, in deviations."""
        corrected, deviation = in_trip(
            prior,
            self.windows_wh,
            self.measured_wh,
            window,
            cold=self.cold,
            speed_mps=self.speed_mps,
        )
        return np.abs(corrected - self.measured_wh) / deviation


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A vehicle's error bars; without any (`trips` 0) all are NaN.

    Half a window's interval is `window_factor` × max(floor, scale · (1, |Wh|, m/s)), half a trip's
    `trip_factor` × max(floor, scale · (√s, s)). With a `prior` (a `TripPrior` in Wh) factors are
    those of `journeys.intervals`, calibrated on `vehicles` others, and multiply its deviations.
    """

    level: float = LEVEL
    trips: int = 0
    source: str = ""
    window_scale: tuple[float, ...] = (0.0, 0.0, 0.0)
    window_floor: float = 0.0
    window_factor: float = math.nan
    trip_scale: tuple[float, ...] = (0.0, 0.0)
    trip_floor: float = 0.0
    trip_factor: float = math.nan
    speed_column: int = -1
    vehicles: int = 0
    window: int = 60
    prior: TripPrior | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the calibration as plain values for a model's card; empty without error bars."""
        entries = asdict(self) if self.trips else {}
        return {name: value for name, value in entries.items() if value is not None}

    def around(
        self, energy_wh: FloatArray, speed_mps: FloatArray, cold: float = 0.0
    ) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper ends for window energies at these mean speeds, [windows] each."""
        if self.prior is not None:
            scale = self.prior.window_deviation_wh(energy_wh, speed_mps, cold)
        else:
            basis = window_basis(energy_wh, speed_mps)
            scale = scale_of(basis, self.window_scale, self.window_floor)
        half = self.window_factor * scale
        return energy_wh - half, energy_wh + half

    def trip(
        self,
        energy_wh: float | FloatArray,
        seconds: int | FloatArray,
        speed_mps: float | FloatArray = 0.0,
        cold: float = 0.0,
    ) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper end for the energy of the first `seconds` of a trip."""
        if self.prior is not None:
            windows = np.asarray(seconds, float) / self.window
            scale = self.prior.trip_deviation_wh(energy_wh, windows, speed_mps, cold, self.window)
        else:
            scale = scale_of(trip_basis(seconds), self.trip_scale, self.trip_floor)
        half = self.trip_factor * scale
        return np.asarray(energy_wh - half), np.asarray(energy_wh + half)


@dataclass(frozen=True)
class PredictionIntervals:
    """The calibration of what the file usually predicts, and of windows whose climb is unknown.

    Both are the same for a model without elevation.
    """

    usual: Calibration
    without_elevation: Calibration

    @staticmethod
    def of(card: ModelCard) -> "PredictionIntervals":
        """Return the prediction intervals of a model."""
        usual = _read(card.calibration, "calibration")
        if not card.without_elevation:
            return PredictionIntervals(usual, usual)
        return PredictionIntervals(usual, _read(card.without_elevation, "without_elevation"))

    def windows(
        self,
        energy_wh: FloatArray,
        windows: NDArray[np.floating],
        climb_known: BoolArray | None = None,
        cold: float = 0.0,
    ) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper ends for windows [batch, window, features] of physical features.

        `climb_known` [batch] is whether the climb of each is known; None: all are alike.
        """
        column = self.usual.speed_column
        speed_mps = windows[:, :, column].mean(axis=1) if column >= 0 else np.zeros(len(energy_wh))
        return self.around(energy_wh, speed_mps, climb_known, cold)

    def around(
        self,
        energy_wh: FloatArray,
        speed_mps: FloatArray,
        climb_known: BoolArray | None = None,
        cold: float = 0.0,
    ) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper ends for window energies at these mean speeds, [windows] each."""
        usual = self.usual.around(energy_wh, speed_mps, cold)
        if climb_known is None:
            return usual
        unknown = self.without_elevation.around(energy_wh, speed_mps, cold)
        low, high = (np.where(climb_known, *ends) for ends in zip(usual, unknown, strict=True))
        return low, high

    def trip(
        self,
        energy_wh: FloatArray,
        unknown_share: FloatArray,
        speed_mps: FloatArray | None = None,
        cold: float = 0.0,
    ) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper ends for the energy since a trip began, all [seconds].

        `unknown_share` is the share of the time so far whose climb is unknown, `speed_mps` the
        speed of each second.
        """
        since_s = np.arange(1, len(energy_wh) + 1, dtype=np.float64)
        mean_mps = np.zeros(len(since_s)) if speed_mps is None else np.cumsum(speed_mps) / since_s
        ends = zip(
            self.usual.trip(energy_wh, since_s, mean_mps, cold),
            self.without_elevation.trip(energy_wh, since_s, mean_mps, cold),
            strict=True,
        )
        low, high = (
            (1 - unknown_share) * usual + unknown_share * unknown for usual, unknown in ends
        )
        return low, high


def _read(entry: Mapping[str, Any], where: str) -> Calibration:
    """Return the calibration of a card's entry."""
    plain = {name: value for name, value in entry.items() if name != "prior"}
    prior = TripPrior(**entry["prior"]) if entry.get("prior") else None
    return replace(from_table(Calibration, plain, where), prior=prior)


def fewest_trips(level: float) -> int:
    """Return the number of trips that prediction intervals of this level need.

    >>> [fewest_trips(level) for level in LEVELS]
    [9, 4, 1]
    """
    return math.ceil(level / (1 - level) - 1e-9)


def level_for(trips: int) -> float:
    """Return the highest of `LEVELS` that so many trips allow.

    >>> level_for(40), level_for(6)
    (0.9, 0.8)
    """
    return next(level for level in LEVELS if fewest_trips(level) <= max(trips, 1))


def calibrate(
    training: Sequence[CalibrationTrip],
    validation: Sequence[CalibrationTrip],
    *,
    level: float = LEVEL,
    speed_column: int = -1,
) -> Calibration:
    """Return the scales from training trips, factors from validation trips; all of one vehicle."""
    if not training or not validation:
        raise DataError("Prediction intervals need a training trip and a validation trip.")
    scale, floor = fit_scale(
        np.concatenate([window_basis(o.windows_wh, o.speed_mps) for o in training]),
        np.concatenate([np.abs(o.windows_wh - o.measured_wh) for o in training]),
    )
    trip_scale, trip_floor = fit_scale(
        np.stack([trip_basis(o.seconds) for o in training]),
        np.array([abs(o.trip_wh - o.trip_measured_wh) for o in training]),
    )

    def scores(trips: Sequence[CalibrationTrip]) -> tuple[list[FloatArray], list[FloatArray]]:
        window_scores = []
        trip_scores = []
        for o in trips:
            expected = scale_of(window_basis(o.windows_wh, o.speed_mps), scale, floor)
            window_scores.append(np.abs(o.windows_wh - o.measured_wh) / expected)
            expected = scale_of(trip_basis(o.seconds), trip_scale, trip_floor)
            trip_scores.append(np.atleast_1d(np.abs(o.trip_wh - o.trip_measured_wh) / expected))
        return window_scores, trip_scores

    validation_scores = scores(validation)
    source = "validation trips"
    window_factor = clustered_quantile(validation_scores[0], level)
    trip_factor = conformal_quantile(np.concatenate(validation_scores[1]), level)
    if math.isinf(window_factor) or math.isinf(trip_factor):
        seen = scores(training)
        if math.isinf(window_factor):
            window_factor = clustered_quantile(rescaled(validation_scores[0], seen[0]), level)
        if math.isinf(trip_factor):
            trip_factor = conformal_quantile(
                np.concatenate(rescaled(validation_scores[1], seen[1])), level
            )
        source = "validation and training trips"
    if math.isinf(window_factor) or math.isinf(trip_factor):
        raise DataError(
            f"Prediction intervals at {level:.0%} need at least {fewest_trips(level)} trips; "
            f"the vehicle has {len(training) + len(validation)}. Record more, or lower the level."
        )
    return Calibration(
        level=level,
        trips=len(validation) + (len(training) if "training" in source else 0),
        source=source,
        window_scale=scale,
        window_floor=floor,
        window_factor=window_factor,
        trip_scale=trip_scale,
        trip_floor=trip_floor,
        trip_factor=trip_factor,
        speed_column=speed_column,
    )


def rescaled(validation: Sequence[FloatArray], training: Sequence[FloatArray]) -> list[FloatArray]:
    """Return the scores of all trips, [windows] each; training scores are rescaled to validation's.

    Few validation trips tell little about how much larger their scores are: n of them count as
    n / (n + `CAUTION`) of what they say.

    >>> training = [np.array([1.0]), np.array([0.0, 2.0])]
    >>> [scores.tolist() for scores in rescaled([np.array([7.0])], training)]
    [[7.0], [2.0], [0.0, 4.0]]
    """
    new, seen = (
        np.mean([trip_scores.mean() for trip_scores in scores]) for scores in (validation, training)
    )
    larger = max(float(new / seen) - 1.0, 0.0) if seen > 0 else 0.0
    stretch = 1.0 + larger * len(validation) / (len(validation) + CAUTION)
    return [*validation, *(stretch * trip_scores for trip_scores in training)]


def conformal_quantile(scores: FloatArray, level: float) -> float:
    """Return the ⌈(n + 1) level⌉-th smallest of n exchangeable scores; infinite if there is none.

    >>> conformal_quantile(np.array([3.0, 1.0, 2.0]), 0.5), conformal_quantile(np.ones(3), 0.9)
    (2.0, inf)
    """
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    return math.inf if rank > len(scores) else float(np.sort(scores)[rank - 1])


def clustered_quantile(scores: Sequence[FloatArray], level: float) -> float:
    """Return the quantile of scores, each trip counting once; infinite if the trips are too few.

    With one window in each trip it is the split-conformal quantile.

    >>> one_each = [np.array([score]) for score in (3.0, 1.0, 2.0)]
    >>> clustered_quantile(one_each, 0.5), clustered_quantile(one_each, 0.9)
    (2.0, inf)
    """
    trips = len(scores)
    values = np.concatenate(scores)
    weights = np.concatenate(
        [np.full(len(trip_scores), 1 / (trips * len(trip_scores))) for trip_scores in scores]
    )
    order = np.argsort(values, kind="stable")
    values, total = values[order], np.cumsum(weights[order])
    plain = values[min(int(np.searchsorted(total, level - 1e-12)), len(values) - 1)]
    corrected = level * (1 + 1 / independent_scores(scores, float(plain), level))
    if corrected > 1 + 1e-12:
        return math.inf
    return float(values[min(int(np.searchsorted(total, corrected - 1e-12)), len(values) - 1)])


def independent_scores(scores: Sequence[FloatArray], threshold: float, level: float) -> float:
    """Return the effective number of independent scores of the trips near `threshold`.

    The share of a trip's windows that the threshold covers varies from trip to trip; so many
    independent windows would vary as much in their mean. Never under the number of trips, nor over
    one window in each minute of driving, since windows that overlap hold the same driving.
    """
    trips = len(scores)
    if trips < 2:
        return trips
    covered = np.array([np.mean(trip_scores <= threshold) for trip_scores in scores])
    spread = float(np.var(covered, ddof=1)) / trips
    most = max(trips, sum(len(trip_scores) for trip_scores in scores) / 60)
    worth = level * (1 - level) / spread if spread > 0 else math.inf
    return float(min(max(worth, trips), most))


def window_basis(energy_wh: FloatArray, speed_mps: FloatArray) -> FloatArray:
    """Return the quantities that a window's error grows with, [windows, 3]."""
    return np.stack([np.ones(len(energy_wh)), np.abs(energy_wh), speed_mps], axis=-1)


def trip_basis(seconds: int | FloatArray) -> FloatArray:
    """Return the quantities that a trip's error grows with, [..., 2]: √time (noise) and time
    (bias).
    """
    length_s = np.asarray(seconds, float)
    return np.stack([np.sqrt(length_s), length_s], axis=-1)


def scale_of(basis: FloatArray, scale: Sequence[float], floor: float) -> FloatArray:
    """Return expected absolute error, [...] for a basis [..., terms]."""
    expected: FloatArray = np.maximum(basis @ np.asarray(scale), floor)
    return expected


def fit_scale(basis: FloatArray, error: FloatArray) -> tuple[tuple[float, ...], float]:
    """Fit absolute errors [n] on `basis` [n, terms] by least squares with weights of 0 or more.

    >>> scale, floor = fit_scale(np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([1.0, 5.0]))
    >>> [round(weight, 6) for weight in scale], floor
    ([1.0, 2.0], 0.6000000000000001)
    """
    # A vehicle that only predicts has no scipy.
    from scipy.optimize import nnls

    weights, _ = nnls(basis, error)
    # An error of 0 everywhere still needs a scale to divide by.
    floor = max(FLOOR * float(error.mean()), 1e-9)
    return tuple(map(float, weights)), floor
