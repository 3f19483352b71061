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
from fedwatt.edge.calibration import Calibration, FloatArray
from fedwatt.edge.card import ModelCard

Interval = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class ErrorBars:
    """The calibration of what the file usually predicts, and that of its level model alone.

    In a file with one network both are the same.
    """

    usual: Calibration
    level: Calibration

    @staticmethod
    def of(card: ModelCard) -> "ErrorBars":
        """The error bars of a model."""
        usual = Calibration.from_json(card.calibration)
        level = card.level.get("calibration")
        return ErrorBars(usual, Calibration.from_json(level) if level else usual)

    def windows(
        self, energy_wh: FloatArray, windows: NDArray[np.floating], hills: BoolArray | None = None
    ) -> Interval:
        """Lower and upper end for windows [batch, window, features] of physical features.

        `hills` [batch] says which of them the network with hills predicted.
        """
        column = self.usual.speed_column
        speed_mps = windows[:, :, column].mean(axis=1) if column >= 0 else np.zeros(len(energy_wh))
        return self.around(energy_wh, speed_mps, hills)

    def around(
        self, energy_wh: FloatArray, speed_mps: FloatArray, hills: BoolArray | None = None
    ) -> Interval:
        """Lower and upper end for window energies at these mean speeds, [windows] each."""
        usual = self.usual.around(energy_wh, speed_mps)
        if hills is None:
            return usual
        ends = zip(usual, self.level.around(energy_wh, speed_mps), strict=True)
        low, high = (np.where(hills, *pair) for pair in ends)
        return low, high

    def trip(self, energy_wh: FloatArray, level_share: FloatArray) -> Interval:
        """Lower and upper end for the energy since a trip began, all [seconds].

        `level_share` is the share of the time so far that the level model predicted.
        """
        since_s = np.arange(1, len(energy_wh) + 1, dtype=np.float64)
        ends = zip(
            self.usual.trip(energy_wh, since_s), self.level.trip(energy_wh, since_s), strict=True
        )
        low, high = ((1 - level_share) * usual + level_share * level for usual, level in ends)
        return low, high
