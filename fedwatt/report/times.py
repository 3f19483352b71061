"""Time of a method's rounds, from timing.parquet.

A row there is one round of all seeds in one stack; here it is divided by their number.
"""

import numpy as np

from fedwatt.metrics import DIAGNOSTICS, amortised_diagnostics_fraction, diagnostics_fraction
from fedwatt.metrics import PARTS as ROUND_PARTS
from fedwatt.report.load import Run, where

PARTS = (*ROUND_PARTS, "evaluation")


def round_times(run: Run, method: str) -> list[dict[str, float]]:
    """Seconds of each trained round by part, for one seed. Round 0 trains nothing."""
    rows = where(run.timing, method=method)
    trained = [i for i, at in enumerate(rows["round"]) if at > 0]
    return [{part: float(rows[part][i] / rows["seeds"][i]) for part in PARTS} for i in trained]


def mean_seconds(run: Run, method: str) -> dict[str, float]:
    """Mean seconds of a round and seed by part; empty if nothing was timed."""
    rounds = round_times(run, method)
    return {part: float(np.mean([own[part] for own in rounds])) for part in PARTS if rounds}


def diagnostics(run: Run, method: str) -> tuple[float, float]:
    """R_diag in rounds with diagnostics (instantaneous) and over all rounds (amortised)."""
    rounds = round_times(run, method)
    with_any = [own for own in rounds if any(own[part] > 0 for part in DIAGNOSTICS)]
    instantaneous = [diagnostics_fraction(own) for own in with_any]
    return (
        float(np.mean(instantaneous)) if instantaneous else 0.0,
        amortised_diagnostics_fraction(rounds),
    )
