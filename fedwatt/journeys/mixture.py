"""A vehicle's mixture of its network with two ridges: weights chosen on its own validation trips.

Three models that err differently err less together: the vehicle's network, its own ridge, and its
ridge with the fleet's as a prior (`journeys.ridge`). Weights are at least 0 and add up to 1:

    w = argmin  n · |y - P w|² / |y - P u|²  +  TRUST · |w - u|²

with predictions P [windows, 3] of validation windows, n validation trips, and u the usual weights,
to which few trips are shrunk. Breiman, "Stacked regressions", 1996, with the shrinkage added. What
the vehicle's own ridge lacks of whole trips (`journeys.trip_balance`) is added. All but the network
is linear in the same features, so a mixture is one number, the network's weight, and one linear
function.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from fedwatt.journeys.ridge import LOCAL, MIXED, fleet_moments, moments, solve, window_features
from fedwatt.journeys.trip_balance import trip_balance
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows.client import Client

USUAL = (0.4, 0.4, 0.2)
"""Weights of the network, of the vehicle's own ridge, and of that with the fleet's as a prior; set
after a look at two splits of VED."""
TRUST = 20.0
"""Validation trips that the usual weights are worth."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Scaled energy of a window: `network` times the network's, plus `linear` · (means, 1).

    `linear` is [features + 1]; means are those of the window's scaled features.
    """

    network: float
    linear: FloatArray

    def predict(self, client: Client, split: str, network: FloatArray) -> FloatArray:
        """Scaled predictions [windows] from those of the network."""
        return self.network * network + window_features(client, split) @ self.linear


Ridges = tuple[FloatArray, FloatArray, FloatArray]
"""Coefficients of a vehicle's own ridge, of that with the fleet's as a prior, and what the first
lacks of whole trips."""


def fleet_ridge(clients: Iterable[Client]) -> FloatArray:
    """The ridge of all vehicles that train, each counting once, [features + 1]."""
    return solve(fleet_moments(moments(one) for one in clients if not one.held_out), LOCAL)


def vehicle_ridges(client: Client, fleet: FloatArray) -> Ridges:
    """Both ridges of a vehicle, given that of the fleet, and its balance of trips."""
    own = moments(client)
    alone = solve(own, LOCAL)
    return alone, solve(own, MIXED, towards=fleet), trip_balance(client, own, alone)


def chosen_mixture(client: Client, ridges: Ridges, network: FloatArray) -> Mixture:
    """The mixture that the vehicle's validation windows ask for; `network` predicts them, [V]."""
    x, labels = window_features(client, "validation"), client.labels["validation"]
    alone, with_fleet, balance = ridges
    predicted = np.column_stack([network, x @ alone, x @ with_fleet])
    trips = len(client.trips["validation"])
    weights = stacking_weights(predicted, labels.astype(np.float64), trips)
    return Mixture(float(weights[0]), weights[1] * alone + weights[2] * with_fleet + balance)


def stacking_weights(predicted: FloatArray, true: FloatArray, trips: int) -> FloatArray:
    """Weights [models] of predictions [windows, models]; models that are not finite get none.

    >>> exact, far = np.array([1.0, -1.0]), np.array([9.0, 9.0])
    >>> stacking_weights(np.column_stack([far, exact, exact]), exact, trips=1000).round(2)
    array([0. , 0.6, 0.4])
    """
    finite = np.isfinite(predicted).all(axis=0)
    usual = np.where(finite, USUAL, 0.0)
    usual = usual / usual.sum()
    predicted = np.where(finite, predicted, 0.0)
    left = float(((true - predicted @ usual) ** 2).mean())
    worth = trips / max(left, 1e-12) / len(true)
    gram = worth * predicted.T @ predicted + TRUST * np.eye(len(usual))
    right = worth * predicted.T @ true + TRUST * usual
    best: FloatArray = usual
    least = np.inf
    places = np.flatnonzero(finite)
    # The least over a face of the simplex, for each face: there are seven.
    for size in range(1, len(places) + 1):
        for face in (list(own) for own in combinations(places, size)):
            inverse = np.linalg.inv(gram[np.ix_(face, face)])
            free, ones = inverse @ right[face], inverse.sum(axis=1)
            weights = np.zeros(len(usual))
            weights[face] = free + ones * (1 - free.sum()) / ones.sum()
            value = float(weights @ gram @ weights - 2 * weights @ right)
            if (weights >= 0).all() and value < least:
                best, least = weights, value
    return best
