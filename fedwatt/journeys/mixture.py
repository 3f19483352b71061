"""A vehicle's window model: a weighted mean of its network and its mixed-effects ridge.

Two models that err differently err less together: the vehicle's network and its mixed-effects ridge
(`journeys.ridge`). The weights are constants: weights that follow few validation trips were no
better on unseen trips, and a ridge of the vehicle's own trips alone added nothing to these two. A
member counts only if it is finite and its error on the vehicle's validation windows is at most
`WORST` times the better member's. Worst case for a window: a member that is sound on validation
windows and wrong in this one counts by its weight; nothing else is added. Both are linear in the
network's output and in the same features, so a mixture is the network's weight and one linear
function.
"""

from dataclasses import dataclass

import numpy as np

from fedwatt.journeys.balance import TripBalance, trip_balance
from fedwatt.journeys.ridge import FleetRidge, mixed_ridge, window_features
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows.client import Client

WEIGHTS = np.array([0.4, 0.6])
"""Of the network and of the mixed-effects ridge."""
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
