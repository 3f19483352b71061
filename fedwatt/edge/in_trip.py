"""Predictions of a trip's windows that learn from the windows before them."""

import numpy as np

from fedwatt.edge.calibration import FloatArray, Outcome
from fedwatt.journeys.filter import TripFilter, TripPrior


def in_trip(
    prior: TripPrior, predicted_wh: FloatArray, measured_wh: FloatArray, window: int
) -> tuple[FloatArray, FloatArray]:
    """Corrected energies and their standard deviations, of a trip's windows, [windows] each.

    The first window ends at second `window`, and every second one more does. Each is corrected by
    what was measured before it began.
    """
    filter = TripFilter(prior, window)
    corrected, deviation = np.empty(len(predicted_wh)), np.empty(len(predicted_wh))
    pairs = zip(predicted_wh.tolist(), measured_wh.tolist(), strict=True)
    for place, (predicted, measured) in enumerate(pairs):
        found = filter.expected(window + place, predicted)
        corrected[place], deviation[place] = predicted + found.wh, found.deviation_wh
        filter.observe(window + place, predicted, measured)
    return corrected, deviation


def in_trip_scores(prior: TripPrior, trip: Outcome, window: int) -> FloatArray:
    """Absolute errors of a trip's corrected windows in standard deviations, [windows]."""
    corrected, deviation = in_trip(prior, trip.windows_wh, trip.measured_wh, window)
    return np.asarray(np.abs(corrected - trip.measured_wh) / deviation)
