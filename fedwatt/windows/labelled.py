"""A trip with its features, its windows and their labels, and what else is known of its windows.

Errors are shown by driving regimes of test windows: by mean speed and by outside temperature.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray, Trip
from fedwatt.windows.reduction import principal_mix, selection_mix
from fedwatt.windows.scaling import Scaler
from fedwatt.windows.windows import known_windows, window_means

Strata = dict[str, tuple[tuple[str, ...], NDArray[np.int8]]]
"""Stratum -> names of its classes, and the class of each window, [windows]."""


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


@dataclass(frozen=True, eq=False)
class LabelledTrip:
    """One usable trip of a vehicle.

    rows      features, not scaled, [seconds, features]
    ends      last second of each window that has a label, [W]
    labels    of these windows, in the target's unit, [W]
    """

    trip: Trip
    split: str
    rows: FloatArray
    ends: IntArray
    labels: FloatArray


def climb_known(trips: Sequence[LabelledTrip], window: int) -> BoolArray:
    """Return whether the climb of the trips' windows was read, [windows]."""
    pieces = []
    for labelled in trips:
        # Climb that was not read here was given, and all of it.
        read = labelled.trip.channels.get("climb_known", np.ones(labelled.trip.seconds))
        pieces.append(known_windows(read, labelled.ends, length=window))
    return np.concatenate(pieces)


def window_strata(trips: Sequence[LabelledTrip], window: int) -> Strata:
    """Classes of the trips' windows, for each stratum whose channel all of them have."""
    strata: Strata = {}
    for name, stratum in STRATA.items():
        channels = [labelled.trip.channels.get(stratum.channel) for labelled in trips]
        complete = [
            values for values in channels if values is not None and np.isfinite(values).all()
        ]
        if len(complete) < len(trips):
            continue
        pairs = zip(complete, trips, strict=True)
        means = [window_means(values, labelled.ends, length=window) for values, labelled in pairs]
        strata[name] = (stratum.names, stratum.codes(np.concatenate(means)))
    return strata


def own_mix(
    training: Sequence[LabelledTrip], scaler: Scaler, window: int, components: int, selected: int
) -> FloatArray:
    """Map to a vehicle's own components or selected features, from its training trips alone."""
    scaled = [scaler.forward(labelled.rows) for labelled in training]
    if components:
        return principal_mix(np.concatenate(scaled), components)
    means = []
    for rows, labelled in zip(scaled, training, strict=True):
        columns = [window_means(column, labelled.ends, length=window) for column in rows.T]
        means.append(np.stack(columns, axis=1))
    labels = np.concatenate([labelled.labels for labelled in training])
    return selection_mix(np.concatenate(means), labels, selected)
