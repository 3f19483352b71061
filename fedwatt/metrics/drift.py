"""Drift of vehicles from the broadcast model, and its inequality.

Paper, `eq:delta_update`, `eq:mean_drift`, `eq:drift_cv`. A vehicle's drift is ‖Δ‖₂, the length of
the update that it sends back.
"""

from math import nan
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

EPSILON_D: Final = 1e-12
"""ε_D of `eq:drift_cv`; the paper gives no value. It only keeps 0/0 from happening."""


def mean_drift(drifts: ArrayLike) -> float:
    """D_mean of a round, `eq:mean_drift`; `drifts` [participants].

    >>> mean_drift([1.0, 3.0])
    2.0
    """
    lengths = np.asarray(drifts, dtype=np.float64)
    return float(lengths.mean()) if lengths.size else nan


def drift_dispersion(drifts: ArrayLike) -> float:
    """D_cv of a round, `eq:drift_cv`: population standard deviation over mean.

    >>> round(drift_dispersion([1.0, 3.0]), 9)
    0.5
    """
    lengths = np.asarray(drifts, dtype=np.float64)
    return float(lengths.std() / (lengths.mean() + EPSILON_D)) if lengths.size else nan
