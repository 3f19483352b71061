"""A trip with its features, windows and labels, and the driving regimes of its windows.

Errors are reported by regimes of test windows: by mean speed, outside temperature, share of
standing time (stop-and-go) and mean grade.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedwatt.telemetry.trip import FloatArray, IntArray, Trip
from fedwatt.windows.features import CLIMB, CLIMB_KNOWN, trip_features
from fedwatt.windows.splits import window_means

MASKED_EVERY = 16
"""One training window in sixteen is repeated with its elevation masked."""

Strata = dict[str, tuple[tuple[str, ...], NDArray[np.int8]]]
"""Stratum -> names of its classes, and the class of each window, [windows]."""


@dataclass(frozen=True)
class Stratum:
    """Classes of window means. A mean at an edge belongs to the class above it.

    per_second   trip → values [seconds]; None where the trip lacks the channels
    names        of the classes; one more than there are intervals names windows with a NaN
    per_metre    the mean is divided by the window's mean speed; a standing window has 0
    """

    per_second: Callable[[Trip], FloatArray | None]
    edges: tuple[float, ...]
    names: tuple[str, ...]
    per_metre: bool = False

    def codes(self, window_means: FloatArray) -> NDArray[np.int8]:
        """Return the class of each window, [W].

        >>> STRATA["speed"].codes(np.array([0.0, 20 / 3.6, 30.0]))
        array([0, 1, 2], dtype=int8)
        """
        return np.searchsorted(self.edges, window_means, side="right").astype(np.int8)


def _standing(trip: Trip) -> FloatArray | None:
    """Return 1 for each second in which the vehicle stands, and 0 otherwise."""
    speed_mps = trip.channels.get("speed_mps")
    if speed_mps is None:
        return None
    # NaN stays NaN: an unknown speed is not 0.
    return np.where(np.isfinite(speed_mps), (speed_mps < STANDING_MPS) * 1.0, np.nan)


def _rise_m(trip: Trip) -> FloatArray | None:
    """Return the metres gained in each second; NaN where climb is not known."""
    if "climb_m" not in trip.channels or "descent_m" not in trip.channels:
        return None
    rise_m = trip.channels["climb_m"] - trip.channels["descent_m"]
    finite = trip.channels.get("climb_known")
    return rise_m if finite is None else np.where(finite > 0, rise_m, np.nan)


STANDING_MPS = 0.3
STRATA: Mapping[str, Stratum] = {
    "speed": Stratum(
        lambda trip: trip.channels.get("speed_mps"),
        (20 / 3.6, 60 / 3.6),
        ("under 20 km/h", "20 to 60 km/h", "over 60 km/h"),
    ),
    "temperature": Stratum(
        lambda trip: trip.channels.get("ambient_c"),
        (5.0, 20.0),
        ("under 5 °C", "5 to 20 °C", "over 20 °C"),
    ),
    "stop-and-go": Stratum(
        _standing, (1e-6, 0.25), ("never standing", "standing under 25 %", "standing 25 % or more")
    ),
    "grade": Stratum(
        _rise_m, (-0.01, 0.01), ("below -1 %", "-1 to 1 %", "over 1 %", "not known"), per_metre=True
    ),
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


def elevation_masked(labelled: LabelledTrip, names: tuple[str, ...], vehicle: str) -> LabelledTrip:
    """Return every `MASKED_EVERY`-th window of a trip with all climb marked as unknown.

    Trained on these windows as well, a network predicts windows without elevation as accurately as
    a network without elevation does.
    """
    level = dict.fromkeys((*CLIMB, CLIMB_KNOWN), np.zeros(labelled.trip.seconds))
    trip = replace(labelled.trip, channels={**labelled.trip.channels, **level})
    rows = trip_features(trip, names, vehicle)
    ends = labelled.ends[::MASKED_EVERY]
    return LabelledTrip(trip, labelled.split, rows, ends, labelled.labels[::MASKED_EVERY])


def window_strata(trips: Sequence[LabelledTrip], window: int) -> Strata:
    """Return the classes of the trips' windows, for each stratum that all of them have."""
    strata: Strata = {}
    for name, stratum in STRATA.items():
        of_trips = [_window_values(stratum, labelled, window) for labelled in trips]
        complete = [values for values in of_trips if values is not None]
        if len(complete) < len(trips):
            continue
        values = np.concatenate(complete)
        codes = stratum.codes(values)
        if np.isnan(values).any():
            if len(stratum.names) < len(stratum.edges) + 2:
                continue
            codes[np.isnan(values)] = len(stratum.edges) + 1
        strata[name] = (stratum.names, codes)
    return strata


def _window_values(stratum: Stratum, labelled: LabelledTrip, window: int) -> FloatArray | None:
    """Return a stratum's value of each window, NaN where a second is not known, [W]."""
    per_second = stratum.per_second(labelled.trip)
    if per_second is None:
        return None
    values = window_means(np.nan_to_num(per_second), labelled.ends, length=window)
    if stratum.per_metre:
        speed_mps = window_means(labelled.trip.channels["speed_mps"], labelled.ends, length=window)
        moving = speed_mps > STANDING_MPS
        values = np.divide(values, speed_mps, out=np.zeros_like(values), where=moving)
    unknown = (
        window_means((~np.isfinite(per_second)).astype(float), labelled.ends, length=window) > 0
    )
    return np.where(unknown, np.nan, values)
