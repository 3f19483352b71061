"""Row spacing, and from it the longest gap to bridge and the pause between trips."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isnan

import numpy as np

from fedwatt.telemetry.cleaning.cause import ROWS_BRIDGED
from fedwatt.telemetry.trip import FloatArray

USUAL_GAP_S = 10.0
EVENT_SHARE = 0.95
"""Loggers driven by change write at any interval: nearly all of these count as recorded."""
LONGEST_EVENT_S = 120.0
PAUSE_S = 300.0
PAUSES_GAPS = 5.0


@dataclass(frozen=True)
class Spacing:
    """Usual interval between rows, longest gap to bridge, pause that ends a trip; all in s."""

    interval_s: float
    maximum_gap_s: float
    pause_s: float

    def sentence(self) -> str:
        """Return the interval in words."""
        if isnan(self.interval_s):
            return "no two rows to measure it on"
        return f"rows are usually {self.interval_s:.3g} s apart"


def spacing(stretches: Sequence[FloatArray]) -> Spacing:
    """Measure stretches of time, each of one vehicle and in any order, [rows] each.

    >>> spacing([np.arange(0.0, 600.0, 15.0)])
    Spacing(interval_s=15.0, maximum_gap_s=38.0, pause_s=300.0)
    >>> spacing([np.arange(0.0, 600.0)]).maximum_gap_s
    10.0
    """
    steps = [np.diff(np.unique(times[np.isfinite(times)])) for times in stretches]
    apart = np.concatenate(steps) if steps else np.empty(0)
    apart = apart[apart < PAUSE_S]
    if not len(apart):
        return Spacing(float("nan"), USUAL_GAP_S, PAUSE_S)
    interval = float(np.median(apart))
    events = min(float(np.quantile(apart, EVENT_SHARE)), LONGEST_EVENT_S)
    gap = max(USUAL_GAP_S, ceil(ROWS_BRIDGED * interval), ceil(events))
    return Spacing(interval, float(gap), max(PAUSE_S, PAUSES_GAPS * gap))
