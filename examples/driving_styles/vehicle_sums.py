"""What a vehicle works out of its own training windows: how it drives, as the global model sees it.

A window's representation is the input φ [p] of the model's last layer. Features that are made of
speed alone are put on the fleet's scale first, so that brisk looks different from calm; all others
are set to their mean, so that neither weather nor heating is taken for a style. Roads differ, too:
what the fleet's windows of the same mean speed v look like is taken off,

    φ - (1, v, v², v³) β,   β of all vehicles by least squares

and what is left is averaged over each trip. Of all this only sums over vehicles are ever needed.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.models import Model
from fedwatt.telemetry.trip import BoolArray, FloatArray
from fedwatt.windows import FEATURES, Client

SPEED: Final = "speed"
MOST_WINDOWS: Final = 2000
"""Windows of a vehicle that are looked at, evenly over its training trips."""
POWERS: Final = np.arange(4)


@dataclass(frozen=True, eq=False)
class FleetScale:
    """Mean and standard deviation of every feature over the fleet, each vehicle counting once."""

    center: FloatArray
    scale: FloatArray


def scale_sums(client: Client) -> FloatArray:
    """Return a vehicle's contribution to the fleet's scale: means of features and squares, [2, F].

    With robust scaling they are medians and what stands for squares there.
    """
    assert client.scaler is not None
    center = client.scaler.center
    scale = client.scaler.scale
    return np.stack([center, scale**2 + center**2])


def fleet_scale(total: FloatArray, vehicles: int) -> FleetScale:
    """Return the fleet's scale from the vehicles' sums [2, F]."""
    center, squares = total / vehicles
    return FleetScale(center, np.sqrt(np.maximum(squares - center**2, 1e-12)))


def motion_features(features: tuple[str, ...]) -> BoolArray:
    """Which features are made of speed alone, [F]; refuses a set that lacks speed itself."""
    if SPEED not in features:
        raise SettingError(
            f"Styles are compared at equal speed, and '{SPEED}' is not among the features "
            f"({', '.join(features)}). Add it to data.features."
        )
    return np.array([set(FEATURES[name].needs) <= {"speed_mps"} for name in features])


@dataclass(frozen=True, eq=False)
class Driving:
    """A vehicle's windows, averaged over each of its T trips, and the sums that β needs.

    powers   float64 [T, 4]: of the windows' mean speed
    hidden   float64 [T, p]: φ
    gram     float64 [4, 4]: mean of powers powersᵀ over all windows
    cross    float64 [4, p]: mean of powers φᵀ
    """

    powers: FloatArray
    hidden: FloatArray
    gram: FloatArray
    cross: FloatArray

    def at_equal_speed(self, beta: FloatArray) -> FloatArray:
        """Return φ minus the fleet's φ at the same speed, [T, p]."""
        return self.hidden - self.powers @ beta


def driving(client: Client, model: Model, weights: Tensor, scale: FleetScale) -> Driving:
    """Return the features of the vehicle's driving by the model with `weights` [D]."""
    assert client.scaler is not None
    moving = motion_features(client.features)
    ends = client.ends["train"]
    # Neighbouring windows of one trip are closer than a window is long.
    trip = np.cumsum(np.concatenate([[0], np.diff(ends) >= client.window]))
    some = np.linspace(0, len(ends) - 1, min(len(ends), MOST_WINDOWS)).astype(int)
    ends, trip = ends[some], trip[some]
    raw = client.series * client.scaler.scale + client.scaler.center
    rows = np.where(moving, (raw - scale.center) / scale.scale, 0.0).astype(np.float32)
    windows = torch.from_numpy(rows[ends[:, None] + np.arange(1 - client.window, 1)])
    with torch.no_grad():
        found = model.representation(model.layout.split(weights), windows.to(weights))
    hidden = found.double().cpu().numpy()
    speed = windows[:, :, client.features.index(SPEED)].double().mean(dim=1).numpy()
    powers = speed[:, None] ** POWERS
    each = [trip == number for number in np.unique(trip)]
    return Driving(
        np.stack([powers[own].mean(axis=0) for own in each]),
        np.stack([hidden[own].mean(axis=0) for own in each]),
        powers.T @ powers / len(ends),
        powers.T @ hidden / len(ends),
    )
