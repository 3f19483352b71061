"""Driving regimes of test windows: error is shown by mean speed and by outside temperature."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedwatt.data.trip import FloatArray


@dataclass(frozen=True)
class Stratum:
    """Classes of a channel's window mean. A mean at an edge belongs to the class above it."""

    channel: str
    edges: tuple[float, ...]
    names: tuple[str, ...]

    def codes(self, window_means: FloatArray) -> NDArray[np.int8]:
        """Class of each window, shape [W].

        >>> STRATA["speed"].codes(np.array([0.0, 20 / 3.6, 30.0]))
        array([0, 1, 2], dtype=int8)
        """
        return np.searchsorted(self.edges, window_means, side="right").astype(np.int8)


STRATA: Mapping[str, Stratum] = {
    "speed": Stratum(
        "speed_mps", (20 / 3.6, 60 / 3.6), ("under 20 km/h", "20 to 60 km/h", "over 60 km/h")
    ),
    "temperature": Stratum("ambient_c", (5.0, 20.0), ("under 5 °C", "5 to 20 °C", "over 20 °C")),
}
