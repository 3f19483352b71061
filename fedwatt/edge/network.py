"""A trained network with the scaling of its vehicle: the input of `graph.build`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fedwatt.data.scaling import Scaler


@dataclass(frozen=True, eq=False)
class Network:
    """The tensors of a model's layout by their names, and how its vehicle scales.

    Without a `scaler` the network takes scaled features and gives scaled energy.
    """

    weights: Mapping[str, NDArray[Any]]
    scaler: Scaler | None = None
    label_center_wh: float = 0.0
    label_scale_wh: float = 1.0
