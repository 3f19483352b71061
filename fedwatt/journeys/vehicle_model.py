"""What one vehicle predicts its windows with: a network, alone or mixed with its ridges."""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.journeys.mixture import Mixture, chosen_mixture, vehicle_ridges
from fedwatt.journeys.ridge import series_features
from fedwatt.models import Model
from fedwatt.telemetry.trip import FloatArray, IntArray, Trip
from fedwatt.windows.client import Client
from fedwatt.windows.features import feature_names, trip_features
from fedwatt.windows.lag import delayed
from fedwatt.windows.windows import window_ends

CHUNK: Final = 4096
"""Windows predicted at a time."""


@dataclass(frozen=True, eq=False)
class VehicleModel:
    """A network with its weights [D], the vehicle that scales what it reads, and the mixture."""

    network: Model
    weights: Tensor
    client: Client
    mixture: Mixture | None = None

    def mixed(self, fleet_ridge: FloatArray) -> "VehicleModel":
        """The same in the mixture with ridges that the vehicle's validation windows ask for."""
        validated = self._scaled(self.client.series, self.client.ends["validation"])
        ridges = vehicle_ridges(self.client, fleet_ridge)
        return replace(self, mixture=chosen_mixture(self.client, ridges, validated))

    def of_split(self, split: str) -> FloatArray:
        """Predictions [W] for the vehicle's windows of a split, in the target's unit."""
        return self._predicted(self.client.series, self.client.ends[split])

    def of_trip(self, trip: Trip, features: str, *, lag_s: float) -> FloatArray:
        """Predictions for each window of a trip, its motion delayed by `lag_s` first."""
        client = self.client
        assert client.scaler is not None
        rows = trip_features(delayed(trip, lag_s), feature_names(features), client.name)
        series = client.scaler.forward(rows).astype(np.float32)
        return self._predicted(series, window_ends(trip.seconds, length=client.window))

    def _predicted(self, series: Any, ends: IntArray) -> FloatArray:
        """Predictions [W] for the windows of a series [seconds, features] that end at `ends`."""
        found, mixture = self._scaled(series, ends), self.mixture
        if mixture is not None:
            linear = series_features(series, ends, self.client.window) @ mixture.linear
            found = mixture.network * found + linear
        return self.client.energy_wh(found)

    def _scaled(self, series: Any, ends: IntArray) -> FloatArray:
        """What the network alone predicts, scaled as labels are."""
        rows, within = torch.from_numpy(np.array(series)), np.arange(1 - self.client.window, 1)
        dtype = self.weights.dtype
        with torch.no_grad():
            found = [
                self.network.predict(
                    self.weights, rows[torch.from_numpy(some[:, None] + within)].to(dtype)
                )
                for some in np.split(ends, range(CHUNK, len(ends), CHUNK))
            ]
        return torch.cat(found).double().numpy()
