"""Metrics: errors, convergence, drift, coupling and time."""

from fedwatt.metrics.errors import (
    EPSILON_Y,
    METRICS,
    NEAR_ZERO,
    SUMS,
    TYPICAL_WH,
    ErrorSums,
    Metric,
    macro_mean,
    micro,
    weighted_mean,
)
from fedwatt.metrics.rounds import (
    FEWEST_PARTICIPANTS,
    drift_dispersion,
    mean_drift,
    pearson,
    rounds_to_threshold,
    spearman,
)
from fedwatt.metrics.timing import (
    DIAGNOSTICS,
    PARTS,
    Stopwatch,
    amortised_diagnostics_fraction,
    diagnostics_fraction,
)

__all__ = [
    "DIAGNOSTICS",
    "EPSILON_Y",
    "FEWEST_PARTICIPANTS",
    "METRICS",
    "NEAR_ZERO",
    "PARTS",
    "SUMS",
    "TYPICAL_WH",
    "ErrorSums",
    "Metric",
    "Stopwatch",
    "amortised_diagnostics_fraction",
    "diagnostics_fraction",
    "drift_dispersion",
    "macro_mean",
    "mean_drift",
    "micro",
    "pearson",
    "rounds_to_threshold",
    "spearman",
    "weighted_mean",
]
