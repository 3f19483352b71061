"""Prediction intervals that hold for a vehicle that no calibration has seen.

A score is the absolute error of a window, an in-trip window or a whole trip over the standard
deviation that the fleet's trip prior expects for it (`filter.TripPrior`), which grows with length,
load, speed and cold. Some vehicles err more than others; a vehicle's size is shrunk to the fleet's:

    σ_v = (M b + Σ u_t) / ((M + n) b)

with mean scores u_t of n own trips that no model was trained on, the fleet's mean score b, and
M = `SHRINKAGE` trips. The interval is prediction ± q_n · σ_v · deviation, with q_n the quantile of
score / σ over the *other* vehicles, each counting once, whose trips are scored as if n other trips
of their own were known. With no own trips σ_v is 1 and q_0 holds the differences between vehicles;
q_n narrows as own trips arrive. Windows of a trip share the weight of one trip, because they
overlap. Conformal prediction with exchangeable vehicles: Lee, Barber and Willett,
"Distribution-free inference with hierarchical data", 2023. M estimated from the fleet's scores, and
a count of independent trips from their spread between vehicles, covered VED's vehicles no better.

Vehicles contribute counts of their scores in bins, which add. A member of the fleet subtracts its
own contribution (`Intervals.without`), so its intervals are calibrated leave-one-vehicle-out.
Needs numpy only.

The fleet's trip prior: how large the parts of a trip's residuals are, from sums.

The shape of the prior is fixed (`USUAL`, in units of a vehicle's label scale); a fleet scales its
shared and its independent part by one factor each. They are fitted to products of residuals r r' by
weighted least squares, over pairs of windows a multiple of a window's length apart in one
validation trip and over single windows. With m the shared covariance that `USUAL` expects, n its
noise and V = m + n of a single window:

    shared factor = Σ r r' m / (V V') / Σ m² / (V V')                  (different windows)
    noise factor  = Σ n (r² - shared factor · m) / V² / Σ n² / V²     (the window itself)

Weights 1 / (V V') keep few windows of high power from deciding. Both factors are variances, bounded
by `MOST_FACTOR` either way, so no sums can make the filter trust a trip blindly or not at all.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedwatt.elevation.grid import find
from fedwatt.errors import DataError
from fedwatt.journeys.filter import TripPrior, in_trip
from fedwatt.journeys.ridge import physical_means, trip_numbers
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows.client import Client

MOST_APART = 12
"""Windows apart up to which residuals are compared."""
USUAL = TripPrior(
    constant_wh=0.03,
    constant_cold_wh=0.05,
    drift_wh=0.06,
    drift_cold_wh=0.14,
    drift_s=500.0,
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

    Pairs, Σ r r' m / (V V') and Σ m² / (V V') of different windows; then Σ n r² / V², Σ n m / V²
    and Σ n² / V² of each window.
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
    noise = USUAL.noise(load, speed)
    shared = constant + drift + USUAL.load**2 * load**2
    variance = shared + noise
    sums = np.zeros(6)
    for apart in range(1, MOST_APART + 1):
        later, present = find(ends, ends + apart * client.window)
        # Rows of different trips may be a window apart by chance.
        first = np.flatnonzero(present & (trip == trip[later]))
        second = later[first]
        decay = np.exp(-apart * client.window / USUAL.drift_s)
        model = constant[first] + drift[first] * decay
        model = model + USUAL.load**2 * load[first] * load[second]
        weighted = model / (variance[first] * variance[second])
        sums[:3] += len(first), weighted @ (residual[first] * residual[second]), weighted @ model
    weighted = noise / variance**2
    sums[3:] = weighted @ residual**2, weighted @ shared, weighted @ noise
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
    # `load` is a ratio, and n₁² is multiplied by |p| in Wh already.
    noise_load_wh = prior.noise_load_wh * scale_wh**0.5
    scaled = _scaled(prior, scale_wh, scale_wh)
    return replace(scaled, load=prior.load, noise_load_wh=noise_load_wh)


KINDS = ("windows", "in_trip", "trips")
LEVEL = 0.9
OWN_TRIPS = (0, 1, 3, 10, 30)
"""Numbers of own trips for which quantiles are kept; between them they are interpolated."""
SHRINKAGE = 5.0
INDEPENDENT_TRIPS = 5
"""Most trips of a vehicle that count as independent: they share its faults, heater and driver."""
BINS = 240
SMALLEST = 0.01
LARGEST = 100.0
"""Scores that bins reach from and to, in equal ratios."""
EDGES = np.concatenate([[0.0], np.geomspace(SMALLEST, LARGEST, BINS)])

Scores = Mapping[str, Sequence[FloatArray]]
"""By kind one array for each trip: the scores of its windows, or the one of the whole trip."""


def vehicle_size(trips: Sequence[FloatArray], fleet_mean: float) -> float:
    """Return σ_v of a vehicle from scores of its own trips.

    >>> vehicle_size([], 0.8), vehicle_size([np.array([1.6])] * 5, 0.8)
    (1.0, 1.5)
    """
    total = SHRINKAGE * fleet_mean + float(sum(trip.mean() for trip in trips))
    return total / ((SHRINKAGE + len(trips)) * fleet_mean)


def score_counts(trips: Sequence[FloatArray], fleet_mean: float) -> FloatArray:
    """Return a vehicle's share of scores / σ per bin, [own trips, bins]; each row adds up to 1.

    For n own trips every trip is scored by the n before it, the last ones standing before the
    first; a vehicle that has fewer uses all its others.
    """
    counts = np.zeros((len(OWN_TRIPS), BINS))
    for row, own_trips in enumerate(OWN_TRIPS):
        for place, trip in enumerate(trips):
            used_trips = min(own_trips, len(trips) - 1)
            before = [trips[place - 1 - back] for back in range(used_trips)]
            scaled = trip / vehicle_size(before, fleet_mean)
            bins = np.clip(np.searchsorted(EDGES, scaled, side="right") - 1, 0, BINS - 1)
            share = np.bincount(bins, minlength=BINS) / len(trip)
            counts[row] += share / len(trips)
    return counts


@dataclass(frozen=True, eq=False)
class Intervals:
    """Scores of a fleet's vehicles, or of one vehicle as its contribution.

    means     by kind, the mean score b
    counts    by kind, [own trips, bins]: sums over vehicles
    vehicles  that contributed
    trips     of theirs that were scored
    """

    means: Mapping[str, float]
    counts: Mapping[str, FloatArray]
    vehicles: int
    trips: int

    def without(self, contributed: "Intervals") -> "Intervals":
        """Return the intervals of the other vehicles, for a vehicle that contributed `own`."""
        counts = {
            kind: np.maximum(self.counts[kind] - contributed.counts[kind], 0.0) for kind in KINDS
        }
        return Intervals(
            self.means, counts, self.vehicles - contributed.vehicles, self.trips - contributed.trips
        )

    def includes(self, contributed: "Intervals") -> bool:
        """Return whether a vehicle's contribution can be among those of this fleet."""
        return self.vehicles >= contributed.vehicles and all(
            bool((contributed.counts[kind] <= self.counts[kind] + 1e-5).all()) for kind in KINDS
        )

    def quantiles(self, kind: str, level: float = LEVEL) -> FloatArray:
        """Return q_n for each of `OWN_TRIPS`."""
        counts = self.counts[kind]
        if not counts.any():
            raise DataError(
                f"No vehicle has scored trips for intervals of {kind}. Train with validation trips."
            )
        # As conformal prediction has it, n independent scores leave room for one more.
        independent = min(self.trips, INDEPENDENT_TRIPS * self.vehicles)
        corrected = min(level * (1 + 1 / max(independent, 1)), 1.0)
        quantiles = []
        for row in counts:
            total = np.concatenate([[0.0], np.cumsum(row)]) / row.sum()
            quantiles.append(float(np.interp(corrected, total, EDGES)))
        return np.array(quantiles)

    def factor(
        self, kind: str, vehicle_scores: Sequence[FloatArray] = (), level: float = LEVEL
    ) -> float:
        """Return half the width of an interval in standard deviations, q_n · σ_v.

        `vehicle_scores` are those of the vehicle's own trips, on which nothing was trained. Without
        any, this is the interval of an unseen vehicle, which rests on `vehicles` and `trips`.
        """
        log_trips = np.log1p(np.array(OWN_TRIPS, dtype=np.float64))
        q = float(np.interp(np.log1p(len(vehicle_scores)), log_trips, self.quantiles(kind, level)))
        return q * vehicle_size(vehicle_scores, self.means[kind])

    def to_json(self) -> dict[str, Any]:
        """Return the intervals as values that JSON can hold."""
        counts = {kind: np.round(self.counts[kind], 6).tolist() for kind in KINDS}
        return {
            "means": dict(self.means),
            "counts": counts,
            "vehicles": self.vehicles,
            "trips": self.trips,
        }

    @staticmethod
    def from_json(entry: Mapping[str, Any]) -> "Intervals":
        """Return the intervals from the JSON of `to_json`."""
        counts = {kind: np.array(entry["counts"][kind], dtype=np.float64) for kind in KINDS}
        return Intervals(dict(entry["means"]), counts, int(entry["vehicles"]), int(entry["trips"]))


def contribution(scores: Scores, means: Mapping[str, float]) -> Intervals:
    """Return a vehicle's contribution, given the fleet's mean scores."""
    counts = {kind: score_counts(scores.get(kind, ()), means[kind]) for kind in KINDS}
    trips = len(scores.get(KINDS[0], ()))
    return Intervals(dict(means), counts, int(trips > 0), trips)


def fleet_means(vehicles: Sequence[Scores]) -> dict[str, float]:
    """Return the mean scores by kind over the vehicles that have trips; 1 where none has."""
    means = {}
    for kind in KINDS:
        scored = [scores[kind] for scores in vehicles if len(scores.get(kind, ()))]
        by_vehicle = [np.mean([trip.mean() for trip in trips]) for trips in scored]
        means[kind] = float(np.mean(by_vehicle)) if any(by_vehicle) else 1.0
    return means


def fleet_intervals(contributions: Iterable[Intervals]) -> Intervals:
    """Return the intervals of a fleet: the sum of its vehicles' contributions."""
    parts = list(contributions)
    if not parts:
        raise DataError("Intervals need at least one vehicle's scores.")
    counts = {kind: np.sum([part.counts[kind] for part in parts], axis=0) for kind in KINDS}
    vehicles = sum(part.vehicles for part in parts)
    return Intervals(parts[0].means, counts, vehicles, sum(part.trips for part in parts))


def validation_scores(client: Client, predicted: FloatArray, prior: TripPrior) -> Scores:
    """Return scores of a vehicle's validation trips from scaled predictions [V] of its windows.

    `prior` is in units of the label scale. A trip's total is scored by the mean of its windows.
    """
    ends = client.ends["validation"]
    trip = trip_numbers(ends, client.window)
    residual = client.labels["validation"].astype(np.float64) - predicted
    load = predicted + client.label_center_wh / client.label_scale_wh
    cold, speed = window_conditions(client, "validation")
    stride = int(np.median(np.diff(ends))) if len(ends) > 1 else client.window
    scores: dict[str, list[FloatArray]] = {kind: [] for kind in KINDS}
    for number in range(int(trip[-1]) + 1 if len(trip) else 0):
        rows = trip == number
        off = residual[rows]
        load_t = load[rows]
        speed_t = speed[rows]
        cold_t = float(np.median(cold[rows]))
        scores["windows"].append(np.abs(off) / prior.window_deviation_wh(load_t, speed_t, cold_t))
        windows = ((len(off) - 1) * stride + client.window) / client.window
        size = prior.trip_deviation_wh(
            load_t.mean() * windows, windows, speed_t.mean(), cold_t, client.window
        )
        scores["trips"].append(np.atleast_1d(abs(off.mean()) * windows / size))
        if client.window % stride == 0:
            corrected, deviation = in_trip(
                prior,
                load_t,
                load_t + off,
                client.window,
                cold=cold_t,
                speed_mps=speed_t,
                stride=stride,
            )
            scores["in_trip"].append(np.abs(load_t + off - corrected) / deviation)
    return scores
