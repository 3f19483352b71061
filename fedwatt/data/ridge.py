"""Ridge regression of a few features through an intercept, as a vehicle fits it on board."""

import numpy as np

from fedwatt.data.trip import FloatArray

RIDGE = 1e-3


def ridge(features: FloatArray, target: FloatArray, strength: float = RIDGE) -> FloatArray:
    """Coefficients of standardised ridge regression through an intercept: [features + 1].

    >>> ridge(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]), strength=0).round(6)
    array([2., 1.])
    """
    center, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 1e-9 * np.maximum(np.abs(center), 1.0), scale, np.inf)
    scaled = (features - center) / scale
    gram = scaled.T @ scaled + strength * len(scaled) * np.eye(scaled.shape[1])
    # A constant column is all zeros here; the identity keeps the system regular.
    gram += np.diag((np.diag(gram) == 0).astype(float))
    beta = np.linalg.solve(gram, scaled.T @ (target - target.mean())) / scale
    return np.append(beta, target.mean() - center @ beta)
