"""The window model of one vehicle: a network, alone or mixed with its ridges."""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.journeys.mixture import Mixture, chosen_mixture
from fedwatt.journeys.ridge import FleetRidge, series_features
from fedwatt.models import Model
from fedwatt.telemetry.trip import FloatArray, IntArray, Trip
from fedwatt.windows.client import Client
from fedwatt.windows.features import feature_names, trip_features
from fedwatt.windows.splits import window_ends
from fedwatt.windows.time_offset import delayed

CHUNK: Final = 4096
"""Windows predicted at a time."""


@dataclass(frozen=True, eq=False)
class VehicleModel:
    """A network with its weights [D], the vehicle that scales what it reads, and the mixture."""

    network: Model
    weights: Tensor
    client: Client
    mixture: Mixture | None = None

    def mixed(self, fleet_ridge: FleetRidge) -> "VehicleModel":
        """Return the model in the mean with its ridges."""
        validated = self._scaled(self.client.series, self.client.ends["validation"])
        return replace(self, mixture=chosen_mixture(self.client, fleet_ridge, validated))

    def of_split(self, split: str) -> FloatArray:
        """Return predictions [W] for the windows of a split, in the target's unit."""
        return self._predicted(self.client.series, self.client.ends[split])

    def of_trip(self, trip: Trip, features: str, *, lag_s: float) -> FloatArray:
        """Return predictions for each window of a trip, its motion delayed by `lag_s` first."""
        client = self.client
        assert client.scaler is not None
        rows = trip_features(delayed(trip, lag_s), feature_names(features), client.name)
        series = client.scaler.forward(rows).astype(np.float32)
        return self._predicted(series, window_ends(trip.seconds, length=client.window))

    def _predicted(self, series: Any, ends: IntArray) -> FloatArray:
        """Return predictions [W] for windows of a series [seconds, features] that end at `ends`."""
        mixture = self.mixture
        predicted = np.zeros(len(ends))
        if mixture is None or mixture.network:
            predicted = self._scaled(series, ends)
        if mixture is not None:
            linear = series_features(series, ends, self.client.window) @ mixture.linear
            predicted = mixture.network * predicted + linear
        return self.client.energy_wh(predicted)

    def _scaled(self, series: Any, ends: IntArray) -> FloatArray:
        """Return the network's own predictions, scaled as labels are."""
        rows = torch.from_numpy(np.array(series))
        within = np.arange(1 - self.client.window, 1)
        dtype = self.weights.dtype
        with torch.no_grad():
            parts = [
                self.network.predict(
                    self.weights, rows[torch.from_numpy(some[:, None] + within)].to(dtype)
                )
                for some in np.split(ends, range(CHUNK, len(ends), CHUNK))
            ]
        return torch.cat(parts).double().numpy()
