"""A vehicle's window model: a weighted mean of its network and its mixed-effects ridge.

Two models that err differently err less together: the vehicle's network and its mixed-effects ridge
(`journeys.ridge`). The weights are constants: weights that follow few validation trips were no
better on unseen trips, and a ridge of the vehicle's own trips alone added nothing to these two. A
member counts only if it is finite and its error on the vehicle's validation windows is at most
`WORST` times the better member's. Worst case for a window: a member that is sound on validation
windows and wrong in this one counts by its weight; nothing else is added. Both are linear in the
network's output and in the same features, so a mixture is the network's weight and one linear
function.

**Trip balance**, a bounded correction of whole trips' energy.

Least squares of windows weigh every minute alike and are ruled by few bad ones; a driver cares for
the share of a trip. The correction is a shift of a trip's mean window, in units of the label scale,

    shift = clip(z · δ, ±limit),    z = (trip means of `DIRECTIONS`, standardised over trips, 1)

    δ = argmin Σ_t w_t |ȳ_t - ŷ_t - z_t · δ| / e_t  +  TRIPS · median weight · |δ|²

over training trips t with mean energy e_t, by reweighted least squares (Schlossmacher, JASA 68,
1973). What bounds it: directions that are constant or collinear with an earlier one are dropped;
the ridge is worth 20 trips in the data's own scale; `limit` is the 99th percentile of the shifts of
its training trips; a trip that lies more than `FAR` deviations from the training trips in any
direction is not shifted; and a vehicle uses it only if its validation trips gain. Windows are left
as they are. Worst case for a trip: a shift by `limit` in the wrong direction.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedwatt.journeys.ridge import (
    FleetRidge,
    mixed_ridge,
    trip_means,
    trip_numbers,
    window_features,
)
from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows.client import Client

WEIGHTS = np.array([0.4, 0.6])
"""Of the network and of the mixed-effects ridge."""
WORST = 3.0
"""Not less: of two validation trips a sound member may well be twice as far off as another."""
DIRECTIONS = (
    "speed",
    "drag",
    "wheel_drive",
    "wheel_brake",
    "ascent",
    "cold",
    "heat",
    "cold_start",
    "heater",
    "ac",
    "warm_up",
)
TRIPS = 20.0
REWEIGHTINGS = 12
SMALLEST = 0.02
"""Relative errors below this weigh alike."""
LEAST_ENERGY = 0.5
"""No trip's mean energy counts as less than so many label scales: standing trips have next to none,
and nobody minds their share."""
COLLINEAR = 0.98
MOST = 0.99
FAR = 4.0
"""Standard deviations of a direction beyond which a trip is unlike all training trips."""
LEAST_TRIPS = 5


@dataclass(frozen=True, eq=False)
class TripBalance:
    """The correction of one vehicle; arrays [directions] unless said otherwise.

    columns        places of the directions among the model's features
    center, scale  of trip means of scaled features
    delta          δ [directions + 1]
    limit          largest shift of a trip's mean window, in label scales
    """

    columns: IntArray
    center: FloatArray
    scale: FloatArray
    delta: FloatArray
    limit: float

    def shift(self, means: FloatArray) -> FloatArray:
        """Return the shift of each trip's mean window, [trips], from means [trips, features].

        It is 0 for a trip that lies more than `FAR` deviations from the training trips.
        """
        z = _directions(means[:, self.columns], self.center, self.scale)
        familiar = np.abs(z).max(axis=1) <= FAR
        return np.where(familiar, np.clip(z @ self.delta, -self.limit, self.limit), 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return the correction as values that JSON can hold."""
        arrays = ("columns", "center", "scale", "delta")
        return {**{name: getattr(self, name).tolist() for name in arrays}, "limit": self.limit}

    @staticmethod
    def from_json(entry: dict[str, Any]) -> "TripBalance":
        """Return the correction of `to_json`."""
        columns = np.array(entry["columns"], dtype=np.int64)
        center, scale, delta = (np.array(entry[n], float) for n in ("center", "scale", "delta"))
        return TripBalance(columns, center, scale, delta, float(entry["limit"]))


def _directions(means: FloatArray, center: FloatArray, scale: FloatArray) -> FloatArray:
    return np.column_stack([(means - center) / scale, np.ones(len(means))])


def fitted_balance(
    features: tuple[str, ...], means: FloatArray, lacking: FloatArray, energy: FloatArray
) -> TripBalance | None:
    """Return the correction of training trips; None where they are fewer than `LEAST_TRIPS`.

    `means` are [trips, features]; `lacking` and `energy` [trips] are the mean error and the mean
    energy of a trip's windows, in label scales.
    """
    if len(means) < LEAST_TRIPS:
        return None
    columns = _independent(features, means)
    center = means[:, columns].mean(axis=0)
    scale = means[:, columns].std(axis=0)
    z = _directions(means[:, columns], center, scale)
    size = np.maximum(np.abs(energy), LEAST_ENERGY)
    delta: FloatArray = np.zeros(z.shape[1])
    for _ in range(REWEIGHTINGS):
        off = np.abs(lacking - z @ delta) / size
        weights = 1 / (size**2 * np.maximum(off, SMALLEST))
        weighted = z * weights[:, None]
        ridge = TRIPS * np.median(weights) * np.eye(len(delta))
        delta = np.linalg.solve(weighted.T @ z + ridge, weighted.T @ lacking).astype(np.float64)
    return TripBalance(columns, center, scale, delta, float(np.quantile(np.abs(z @ delta), MOST)))


def _independent(features: tuple[str, ...], means: FloatArray) -> IntArray:
    """Return places of the directions that vary and are not collinear with an earlier one."""
    chosen: list[int] = []
    for name in DIRECTIONS:
        if name not in features:
            continue
        column = features.index(name)
        values = means[:, column]
        if values.std() <= 1e-6 * max(1.0, float(np.abs(values).max())):
            continue
        parallel = (abs(np.corrcoef(values, means[:, other])[0, 1]) for other in chosen)
        if all(value < COLLINEAR for value in parallel):
            chosen.append(column)
    return np.array(chosen, dtype=np.int64)


def trip_balance(
    client: Client, features: dict[str, FloatArray], predicted: dict[str, FloatArray]
) -> TripBalance | None:
    """Return the balance of a vehicle where its validation trips gain, else None.

    `features` [windows, f + 1] and scaled predictions [windows] are those of "train", by the
    vehicle's linear members alone, and of "validation", by the model that it corrects.
    """
    center = client.label_center_wh / client.label_scale_wh

    def of_trips(split: str) -> tuple[FloatArray, FloatArray, FloatArray]:
        trip = trip_numbers(client.ends[split], client.window)
        labels = client.labels[split].astype(np.float64)
        means = trip_means(features[split][:, :-1], trip)
        lacking = trip_means(labels - predicted[split], trip)
        return means, lacking, trip_means(labels, trip) + center

    balance = fitted_balance(client.features, *of_trips("train"))
    if balance is None or not len(client.ends["validation"]):
        return None
    means, lacking, energy = of_trips("validation")
    size = np.maximum(np.abs(energy), LEAST_ENERGY)
    before = np.minimum(np.abs(lacking) / size, 1.0).mean()
    after = np.minimum(np.abs(lacking - balance.shift(means)) / size, 1.0).mean()
    return balance if after < before else None


@dataclass(frozen=True, eq=False)
class Mixture:
    """Scaled energy of a window: `network` times the network's, plus `linear` · (means, 1).

    `linear` is [features + 1]; means are those of the window's scaled features. `balance` corrects
    whole trips.
    """

    network: float
    linear: FloatArray
    balance: TripBalance | None = None

    def predict(self, client: Client, split: str, network: FloatArray) -> FloatArray:
        """Return scaled predictions [windows] from those of the network."""
        linear = window_features(client, split) @ self.linear
        return self.network * network + linear if self.network else linear


def chosen_mixture(client: Client, fleet: FleetRidge, network: FloatArray) -> Mixture:
    """Return the mean of a vehicle's sound members; `network` predicts its validation windows."""
    client = client.as_recorded()
    x = {split: window_features(client, split) for split in ("train", "validation")}
    ridge = mixed_ridge(client, fleet)
    predicted = np.column_stack([network, x["validation"] @ ridge])
    weights = member_weights(predicted, client.labels["validation"].astype(np.float64))
    balance = None
    if weights[1]:
        # The network fits training trips too closely to show what it lacks in others.
        mean = np.where(weights > 0, predicted, 0.0) @ weights
        balance = trip_balance(client, x, {"train": x["train"] @ ridge, "validation": mean})
    return Mixture(float(weights[0]), weights[1] * ridge, balance)


def unvalidated_mixture(client: Client, fleet: FleetRidge) -> Mixture:
    """Return the mean of both members, for a vehicle without validation trips."""
    return Mixture(float(WEIGHTS[0]), WEIGHTS[1] * mixed_ridge(client, fleet))


def member_weights(predicted: FloatArray, true: FloatArray) -> FloatArray:
    """Return the weights [2] of predictions [windows, 2] of the network and the ridge.

    >>> true = np.array([1.0, -1.0])
    >>> member_weights(np.column_stack([1.1 * true, 0.9 * true]), true)
    array([0.4, 0.6])
    >>> member_weights(np.column_stack([true * np.nan, 0.9 * true]), true)
    array([0., 1.])
    """
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.sqrt(((predicted - true[:, None]) ** 2).mean(axis=0))
    error = np.where(np.isfinite(error), error, np.inf)
    sound = np.isfinite(error) & (error <= WORST * error.min() + 1e-12)
    if not sound.any():
        return np.array([0.0, 1.0])
    weights = WEIGHTS * sound
    return np.asarray(weights / weights.sum())
