"""A vehicle's window model: the plain mean of its network and two ridges.

Three models that err differently err less together: the vehicle's network, its local ridge and its
mixed-effects ridge (`journeys.ridge`). Each counts alike: weights that follow few validation trips
were no better than equal ones on unseen trips. A member counts only if it is finite and its error
on the vehicle's validation windows is at most `WORST` times the least member's, so that a network
that diverged, or a ridge of a vehicle with few trips, cannot ruin the mean. All but the network is
linear in the same features, so a mixture is the network's weight and one linear function.
"""

from dataclasses import dataclass

import numpy as np

from fedwatt.journeys.balance import TripBalance, trip_balance
from fedwatt.journeys.ridge import FleetRidge, local_ridge, mixed_ridge, window_features
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows.client import Client

WORST = 3.0
"""Not less: of two validation trips a sound member may well be twice as far off as another."""


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
    ridges = (mixed_ridge(client, fleet), local_ridge(client))
    predicted = np.column_stack([network, *(x["validation"] @ beta for beta in ridges)])
    labels = client.labels["validation"].astype(np.float64)
    weights = member_weights(predicted, labels)
    linear = weights[1] * ridges[0] + weights[2] * ridges[1]
    # The network has seen the training trips by heart: what trips lack is told by the ridges.
    seen = x["train"] @ (linear / max(1 - weights[0], 1e-9)) if weights[0] < 1 else None
    mean = np.where(weights > 0, predicted, 0.0) @ weights
    balance = None
    if seen is not None:
        balance = trip_balance(client, x, {"train": seen, "validation": mean})
    return Mixture(float(weights[0]), linear, balance)


def member_weights(predicted: FloatArray, true: FloatArray) -> FloatArray:
    """Return equal weights [members] of the sound columns of predictions [windows, members].

    >>> true = np.array([1.0, -1.0])
    >>> member_weights(np.column_stack([true * np.nan, 1.1 * true, 0.9 * true, 5 * true]), true)
    array([0. , 0.5, 0.5, 0. ])
    """
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.sqrt(((predicted - true[:, None]) ** 2).mean(axis=0))
    error = np.where(np.isfinite(error), error, np.inf)
    sound = error <= WORST * error.min() + 1e-12
    sound &= np.isfinite(error)
    # No member is finite: the mixed-effects ridge, which the fleet holds.
    sound = sound if sound.any() else np.arange(len(error)) == 1
    weights: FloatArray = sound / sound.sum()
    return weights
