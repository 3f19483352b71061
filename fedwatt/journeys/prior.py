"""How large the parts of a trip's residuals usually are, from sums that vehicles can add.

Residuals r of windows that end k windows apart in one trip share what lasts that long:

    E[r_i r_(i+k)] = constant² + drift² e^(-k L/τ) + load² p_i p_(i+k),   k ≥ 1

with predictions p and windows of L seconds. For every k a vehicle hands up five sums over its
validation trips: of 1, of p p', of (p p')², of r r' and of r r' p p'. They add, and least squares
without negative terms give the three variances for every candidate τ; what is left of E[r²] is the
window's own noise. Residuals and predictions are in units of the vehicle's label scale, so that a
bus counts no more than a car.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import numpy as np

from fedwatt.elevation.field import find
from fedwatt.journeys.filter import TripPrior
from fedwatt.journeys.trip_balance import trip_numbers
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows.client import Client

MOST_WINDOWS = 12
"""How many windows apart residuals are compared at most."""
DRIFTS_S = (120.0, 240.0, 400.0, 600.0, 900.0, 1500.0)
USUAL = TripPrior(constant_wh=0.03, drift_wh=0.11, drift_s=400.0, load=0.04, noise_wh=0.13)
"""In units of the label scale, as the electric vehicles of VED have them; stands in for sums."""
LEAST_PAIRS = 200
"""So many pairs of neighbouring windows must have been summed to replace `USUAL`."""


def residual_sums(client: Client, predicted: FloatArray) -> FloatArray:
    """The five sums for 0 to `MOST_WINDOWS` windows apart, [13, 5], from scaled predictions [V]."""
    labels, ends = client.labels["validation"].astype(np.float64), client.ends["validation"]
    sums = np.zeros((MOST_WINDOWS + 1, 5))
    if len(ends) < 2:
        return sums
    center = client.label_center_wh / client.label_scale_wh
    residual, load = labels - predicted, predicted + center
    trip = trip_numbers(ends, client.window)
    for apart in range(MOST_WINDOWS + 1):
        later, there = find(ends, ends + apart * client.window)
        # Rows of different trips may be a window apart by chance.
        first = np.flatnonzero(there & (trip == trip[later]))
        second = later[first]
        loads, both = load[first] * load[second], residual[first] * residual[second]
        columns = (np.ones(len(loads)), loads, loads**2, both, both * loads)
        sums[apart] = [column.sum() for column in columns]
    return sums


def fitted_prior(vehicles: Iterable[FloatArray], window: int) -> TripPrior:
    """The prior, in units of the label scale, of the vehicles' sums."""
    total = np.sum(list(vehicles), axis=0)
    if np.ndim(total) == 0 or total[1, 0] < LEAST_PAIRS:
        return USUAL
    tried = [(*_variances(total, window, drift_s), drift_s) for drift_s in DRIFTS_S]
    _, (constant, drift, load), drift_s = min(tried, key=lambda own: own[0])
    count, loads, _, squares, _ = total[0]
    noise = squares / count - constant - drift - load * loads / count
    return TripPrior(
        constant_wh=float(np.sqrt(constant)),
        drift_wh=float(np.sqrt(drift)),
        drift_s=drift_s,
        load=float(np.sqrt(load)),
        noise_wh=float(np.sqrt(max(noise, 0.1 * squares / count, 1e-12))),
    )


def _variances(total: FloatArray, window: int, drift_s: float) -> tuple[float, FloatArray]:
    """What least squares leave, and the variances of constant, drift and load, none below 0."""
    gram, right = np.zeros((3, 3)), np.zeros(3)
    for apart in range(1, len(total)):
        count, loads, squared, both, weighted = total[apart]
        decay = np.exp(-apart * window / drift_s)
        part = np.array([1.0, decay])
        gram[:2, :2] += count * np.outer(part, part)
        gram[:2, 2] += loads * part
        gram[2, :2] += loads * part
        gram[2, 2] += squared
        right += np.array([both, decay * both, weighted])
    best, least = np.zeros(3), 0.0
    # So few terms that every set of them can be tried.
    for chosen in (list(own) for size in (1, 2, 3) for own in combinations(range(3), size)):
        found = np.linalg.lstsq(gram[np.ix_(chosen, chosen)], right[chosen])[0]
        left = float(-found @ right[chosen])
        if (found >= 0).all() and left < least:
            best, least = np.zeros(3), left
            best[chosen] = found
    return least, best


def in_wh(prior: TripPrior, scale_wh: float) -> TripPrior:
    """A prior in units of the label scale as one in Wh of a vehicle."""
    names = ("constant_wh", "drift_wh", "noise_wh")
    return replace(prior, **{name: getattr(prior, name) * scale_wh for name in names})
