"""The error bars in a model's card: of what the vehicle predicts, and of its level model alone.

A vehicle that knows its hills has narrow error bars. Where its receiver fails, the level model
predicts, which errs more, so it brings error bars of its own: calibrated on the same trips, as if
no climb of theirs were known. For part of a trip the two are weighed by the time that each model
predicted. Where climb was often unknown in the trips that calibrated, that is in both, and mixed
trips get bars that are too wide rather than too narrow. Needs numpy only.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedwatt.data.windows import BoolArray
from fedwatt.edge.card import ModelCard
from fedwatt.edge.interval import Calibration, FloatArray

Interval = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class ErrorBars:
    """Of a file with one network `usual` is all there is."""

    usual: Calibration
    level: Calibration

    @staticmethod
    def of(card: ModelCard) -> "ErrorBars":
        """The error bars of a model."""
        usual = Calibration.from_json(card.calibration)
        kept = card.level.get("calibration")
        return ErrorBars(usual, Calibration.from_json(kept) if kept else usual)

    def windows(
        self, energy_wh: FloatArray, windows: NDArray[np.floating], hills: BoolArray | None = None
    ) -> Interval:
        """Lower and upper end for windows [batch, window, features] of physical features.

        `hills` [batch] says which of them the network with hills predicted.
        """
        usual = self.usual.windows(energy_wh, windows)
        return _chosen(usual, self.level.windows(energy_wh, windows), hills)

    def around(
        self, energy_wh: FloatArray, speed_mps: FloatArray, hills: BoolArray | None = None
    ) -> Interval:
        """The same for window energies at these mean speeds, [windows] each."""
        usual = self.usual.around(energy_wh, speed_mps)
        return _chosen(usual, self.level.around(energy_wh, speed_mps), hills)

    def trip(self, energy_wh: FloatArray, level_share: FloatArray) -> Interval:
        """Ends for the energy since a trip began, all [seconds], by the level model's share."""
        since_s = np.arange(1, len(energy_wh) + 1, dtype=np.float64)
        ends = zip(
            self.usual.trip(energy_wh, since_s), self.level.trip(energy_wh, since_s), strict=True
        )
        low, high = ((1 - level_share) * usual + level_share * level for usual, level in ends)
        return low, high


def _chosen(usual: Interval, level: Interval, hills: BoolArray | None) -> Interval:
    if hills is None:
        return usual
    low, high = (np.where(hills, *pair) for pair in zip(usual, level, strict=True))
    return low, high
