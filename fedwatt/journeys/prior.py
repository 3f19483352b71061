"""The fleet's trip prior: how large the parts of a trip's residuals are, from sums.

The shape of the prior is fixed (`USUAL`, in units of a vehicle's label scale); a fleet scales its
shared and its independent part by one factor each. For windows a multiple of a window's length
apart in one validation trip, a vehicle adds up r r', the covariance m that `USUAL` expects, and m²:

    shared factor = Σ r r' m / Σ m²   (different windows)
    noise factor  = (Σ r² - shared factor · Σ m) / Σ noise   (the window itself)

Both are variances, bounded by `MOST_FACTOR` either way, so no sums can make the filter trust a
trip blindly or not at all.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from fedwatt.elevation.elevation_map import find
from fedwatt.journeys.balance import trip_numbers
from fedwatt.journeys.filter import TripPrior
from fedwatt.journeys.ridge import physical_means
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows.client import Client

MOST_APART = 12
"""Windows apart up to which residuals are compared."""
USUAL = TripPrior(
    constant_wh=0.03,
    constant_cold_wh=0.05,
    drift_wh=0.06,
    drift_cold_wh=0.14,
    drift_s=700.0,
    load=0.03,
    noise_wh=0.09,
    noise_load_wh=0.06,
    noise_drag_wh=0.05,
)
"""In units of the label scale; rounded from likelihood fits on VED's electric vehicles."""
SHARED = ("constant_wh", "constant_cold_wh", "drift_wh", "drift_cold_wh", "load")
NOISE = ("noise_wh", "noise_load_wh", "noise_drag_wh")
MOST_FACTOR = 4.0
LEAST_PAIRS = 200
"""Pairs of windows without which the factors are 1."""


def window_conditions(client: Client, split: str) -> tuple[FloatArray, FloatArray]:
    """Return coldness and mean speed of each window of a split, [windows] each; 0 if unknown."""
    means = physical_means(client, split)
    nothing = np.zeros(len(means))

    def column(name: str) -> FloatArray | None:
        return means[:, client.features.index(name)] if name in client.features else None

    ambient = column("ambient")
    speed = column("speed")
    cold = nothing if ambient is None else np.clip((15.0 - ambient) / 15.0, 0.0, 2.0)
    return cold, nothing if speed is None else np.maximum(speed, 0.0)


def residual_sums(client: Client, predicted: FloatArray) -> FloatArray:
    """Return the six sums of a vehicle from scaled predictions [V] of its validation windows.

    Pairs, Σ r r' m and Σ m² of different windows; then Σ r², Σ m and Σ noise of each window.
    """
    ends = client.ends["validation"]
    if len(ends) < 2:
        return np.zeros(6)
    residual = client.labels["validation"].astype(np.float64) - predicted
    load = predicted + client.label_center_wh / client.label_scale_wh
    cold, speed = window_conditions(client, "validation")
    trip = trip_numbers(ends, client.window)
    constant = USUAL.constant_wh**2 + (USUAL.constant_cold_wh * cold) ** 2
    drift = (USUAL.drift_wh + USUAL.drift_cold_wh * cold) ** 2
    sums = np.zeros(6)
    for apart in range(1, MOST_APART + 1):
        later, present = find(ends, ends + apart * client.window)
        # Rows of different trips may be a window apart by chance.
        first = np.flatnonzero(present & (trip == trip[later]))
        second = later[first]
        decay = np.exp(-apart * client.window / USUAL.drift_s)
        model = constant[first] + drift[first] * decay
        model = model + USUAL.load**2 * load[first] * load[second]
        both = residual[first] * residual[second]
        sums[:3] += len(first), both @ model, model @ model
    own = constant + drift + USUAL.load**2 * load**2
    sums[3:] = residual @ residual, own.sum(), USUAL.noise(load, speed).sum()
    return sums


def fitted_prior(vehicles: Iterable[FloatArray]) -> TripPrior:
    """Return the prior, in units of the label scale, of the vehicles' sums."""
    pairs, products, squares, residual, shared_sum, noise_sum = np.sum(
        [np.zeros(6), *vehicles], axis=0
    )
    if pairs < LEAST_PAIRS or squares <= 0 or noise_sum <= 0:
        return USUAL
    shared = float(np.clip(products / squares, 1 / MOST_FACTOR, MOST_FACTOR))
    noise = (residual - shared * shared_sum) / noise_sum
    return _scaled(USUAL, shared**0.5, float(np.clip(noise, 1 / MOST_FACTOR, MOST_FACTOR)) ** 0.5)


def _scaled(prior: TripPrior, shared: float, noise: float) -> TripPrior:
    changed = {name: getattr(prior, name) * shared for name in SHARED}
    return replace(prior, **changed, **{name: getattr(prior, name) * noise for name in NOISE})


def in_wh(prior: TripPrior, scale_wh: float) -> TripPrior:
    """Return a prior in units of the label scale as one in Wh of a vehicle."""
    changed = {name: getattr(prior, name) * scale_wh for name in (*SHARED, *NOISE)}
    # `load` is a ratio, and n₁² is multiplied by |p| in Wh already.
    changed |= {"load": prior.load, "noise_load_wh": prior.noise_load_wh * scale_wh**0.5}
    return replace(prior, **changed)
