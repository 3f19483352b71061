"""Centre and scale of a vehicle's features and labels, from its own training trips only.

A ridge regression through an intercept, y = x · β with 1 as the last feature, minimises the mean
squared error plus `strength` times Σ variance_f · β_f²: a term is pulled in proportion to its
feature's variance, so that units do not matter, and the intercept is free.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedwatt.telemetry.trip import FloatArray

# Interquartile range of a standard normal: dividing by it makes both scalings agree on normal data.
NORMAL_IQR = 1.3489795003921634
# Below this fraction of its size (or of 1) a spread is rounding error, not variation.
NEGLIGIBLE = 1e-9
LEAST = 0.4  # share of a typical size below which a vehicle's own one does not count


@dataclass(frozen=True, eq=False)
class Scaler:
    """`scaled = (values - center) / scale`. Both [features], or [] for a label."""

    center: FloatArray
    scale: FloatArray

    def forward(self, values: FloatArray) -> FloatArray:
        """Scale `values` [..., features]."""
        return (values - self.center) / self.scale


PRIOR_S = 3600.0
"""Seconds of driving after which a vehicle's scaling counts as much as its fleet's."""


@dataclass(frozen=True, eq=False)
class FleetScaling:
    """The mean scaling of a fleet's vehicles, with which a vehicle of few trips or none begins.

    center, scale              of the features, [features]
    label_center, label_scale  of the labels, in the target's unit
    lag_s                      time offset
    wh_per_km, mass_kg         of the vehicles; 0: unknown
    """

    center: FloatArray
    scale: FloatArray
    label_center: float
    label_scale: float
    lag_s: float = 0.0
    wh_per_km: float = 0.0
    mass_kg: float = 0.0

    @property
    def features(self) -> Scaler:
        """The scaling of the features."""
        return Scaler(self.center, self.scale)

    @property
    def labels(self) -> Scaler:
        """The scaling of the labels."""
        return Scaler(np.array(self.label_center), np.array(self.label_scale))

    def times(self, factor: float) -> "FleetScaling":
        """Return the scaling for a vehicle that takes `factor` times the fleet's energy."""
        return replace(
            self, label_center=self.label_center * factor, label_scale=self.label_scale * factor
        )


def pooled(prior: Scaler, vehicle: Scaler, seconds: int) -> Scaler:
    """Return a vehicle's scaling from `seconds` of driving, pooled with a prior of `PRIOR_S`.

    With the prior's share s of the time, centre c = s c₀ + (1 - s) c₁ and variance
    s σ₀² + (1 - s) σ₁² + s (1 - s) (c₁ - c₀)².

    >>> pooled(Scaler(np.array(0.0), np.array(1.0)), Scaler(np.array(2.0), np.array(1.0)), 3600)
    Scaler(center=np.float64(1.0), scale=np.float64(1.4142135623730951))
    """
    share = PRIOR_S / (PRIOR_S + seconds)
    center = share * prior.center + (1 - share) * vehicle.center
    within = share * prior.scale**2 + (1 - share) * vehicle.scale**2
    between = share * (1 - share) * (vehicle.center - prior.center) ** 2
    return Scaler(center, np.sqrt(within + between))


def zscore(rows: FloatArray) -> Scaler:
    """Return the scaler by mean and standard deviation of `rows` [seconds, features].

    A constant feature keeps scale 1.

    >>> scaler = zscore(np.array([[1.0, 7.0], [3.0, 7.0]]))
    >>> scaler.center, scaler.scale
    (array([2., 7.]), array([1., 1.]))
    """
    center = rows.mean(axis=0)
    deviation = rows.std(axis=0)
    return Scaler(center, np.where(_varies(deviation, center), deviation, 1.0))


def robust(rows: FloatArray) -> Scaler:
    """Return the scaler by median and interquartile range of `rows` [seconds, features].

    A feature that mostly stays at one value, such as a heater that is seldom on, has no
    interquartile range but large rare values: it is scaled by its standard deviation instead.
    """
    low, center, high = np.quantile(rows, (0.25, 0.5, 0.75), axis=0)
    spread = (high - low) / NORMAL_IQR
    return Scaler(center, np.where(_varies(spread, center), spread, zscore(rows).scale))


def about_zero(rows: FloatArray, typical: FloatArray) -> Scaler:
    """Return the scaler that keeps 0 and divides by the mean size of nonzero `rows`.

    For climb, where 0 is a level road and also ground that nobody knows. A mean or a deviation over
    all seconds would depend on how many are unknown: a vehicle whose receiver works in one trip of
    ten would see slopes three times as steep as the others do. Where nothing is known, 1 is the
    `typical` size [features]; and it is never below LEAST of that, or the first hill of a vehicle
    from the plains would be a cliff.

    >>> about_zero(np.array([[0.0, 0.0], [0.5, 0.0], [1.5, 0.0]]), np.array([0.25, 0.25])).scale
    array([1.  , 0.25])
    >>> about_zero(np.array([[0.0], [0.002]]), np.array([0.25])).scale
    array([0.1])
    """
    sizes = np.abs(rows).sum(axis=0)
    nonzero = (rows != 0).sum(axis=0)
    usual = np.maximum(sizes / np.maximum(nonzero, 1), LEAST * typical)
    return Scaler(np.zeros(rows.shape[1]), np.where(nonzero > 0, usual, typical))


def _varies(spread: FloatArray, center: FloatArray) -> NDArray[np.bool_]:
    return spread > NEGLIGIBLE * np.maximum(np.abs(center), 1.0)


SCALINGS: Mapping[str, Callable[[FloatArray], Scaler]] = {"zscore": zscore, "robust": robust}


RIDGE = 1e-3  # relative to the variance of a feature


def pulled(gram: FloatArray, right: FloatArray, strength: float) -> FloatArray:
    """Return β [features + 1] from the means of x xᵀ and x y, shrunk towards 0.

    A feature that never changes gets 0.

    >>> x, y = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]), np.array([1.0, 3.0, 5.0])
    >>> gram, right = x.T @ x / 3, x.T @ y / 3
    >>> pulled(gram, right, 0.0).round(6), pulled(gram, right, 1.0).round(6)
    (array([2., 1.]), array([1., 2.]))
    """
    variance = np.maximum(np.diag(gram) - gram[-1] ** 2, 0.0)
    pull = strength * variance
    pull[:-1] = np.where(variance[:-1] > 1e-12, pull[:-1], 1.0)
    return np.asarray(np.linalg.solve(gram + np.diag(pull), right))


def ridge(features: FloatArray, target: FloatArray) -> FloatArray:
    """Fit β [features + 1] on rows [rows, features] in any units.

    >>> ridge(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0])).round(2)
    array([2., 1.])
    """
    center = features.mean(axis=0)
    scale = features.std(axis=0)
    # A column that never changes becomes 0, and gets no weight.
    scale = np.where(scale > 1e-9 * np.maximum(np.abs(center), 1.0), scale, np.inf)
    rows = np.column_stack([(features - center) / scale, np.ones(len(features))])
    beta = pulled(rows.T @ rows / len(rows), rows.T @ target / len(rows), RIDGE)
    slopes = beta[:-1] / scale
    return np.append(slopes, beta[-1] - center @ slopes)
