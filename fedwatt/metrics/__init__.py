"""What is measured: errors, convergence, drift, coupling and time."""

from fedwatt.metrics.convergence import rounds_to_threshold
from fedwatt.metrics.coupling import FEWEST_PARTICIPANTS, pearson, spearman
from fedwatt.metrics.drift import drift_dispersion, mean_drift
from fedwatt.metrics.errors import (
    EPSILON_Y_WH,
    METRICS,
    NEAR_ZERO_WH,
    SUMS,
    ErrorSums,
    Metric,
    macro_mean,
    micro,
    weighted_mean,
)
from fedwatt.metrics.timing import (
    DIAGNOSTICS,
    PARTS,
    Stopwatch,
    amortised_diagnostics_fraction,
    diagnostics_fraction,
)

__all__ = [
    "DIAGNOSTICS", "EPSILON_Y_WH", "FEWEST_PARTICIPANTS", "METRICS", "NEAR_ZERO_WH", "PARTS",
    "SUMS", "ErrorSums", "Metric", "Stopwatch", "amortised_diagnostics_fraction",
    "diagnostics_fraction", "drift_dispersion", "macro_mean", "mean_drift", "micro", "pearson",
    "rounds_to_threshold", "spearman", "weighted_mean",
]  # fmt: skip
