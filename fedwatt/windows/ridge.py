"""Ridge regression through an intercept, from sums or from rows.

y = x · β with 1 as the last feature. β minimises the mean squared error plus `strength` times
Σ variance_f · (β_f - towards_f)²: a term is pulled in proportion to its feature's variance, so that
units do not matter, and the intercept is free.
"""

import numpy as np

from fedwatt.telemetry.trip import FloatArray

RIDGE = 1e-3


def pulled(
    gram: FloatArray, right: FloatArray, strength: float, towards: FloatArray | None = None
) -> FloatArray:
    """β [features + 1] of means of x xᵀ and of x y, pulled towards another (None: 0).

    A feature that never changes takes the value that it is pulled to.

    >>> x, y = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]), np.array([1.0, 3.0, 5.0])
    >>> gram, right = x.T @ x / 3, x.T @ y / 3
    >>> pulled(gram, right, 0.0).round(6), pulled(gram, right, 1.0).round(6)
    (array([2., 1.]), array([1., 2.]))
    """
    variance = np.maximum(np.diag(gram) - gram[-1] ** 2, 0.0)
    pull = strength * variance
    pull[:-1] = np.where(variance[:-1] > 1e-12, pull[:-1], 1.0)
    towards = np.zeros(len(pull)) if towards is None else towards
    return np.linalg.solve(gram + np.diag(pull), right + pull * towards)


def ridge(features: FloatArray, target: FloatArray, strength: float = RIDGE) -> FloatArray:
    """β [features + 1] of rows [rows, features], whatever their units.

    >>> ridge(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]), strength=0).round(6)
    array([2., 1.])
    """
    center = features.mean(axis=0)
    scale = features.std(axis=0)
    # A column that never changes becomes 0, and gets no weight.
    scale = np.where(scale > 1e-9 * np.maximum(np.abs(center), 1.0), scale, np.inf)
    rows = np.column_stack([(features - center) / scale, np.ones(len(features))])
    beta = pulled(rows.T @ rows / len(rows), rows.T @ target / len(rows), strength)
    slopes = beta[:-1] / scale
    return np.append(slopes, beta[-1] - center @ slopes)
