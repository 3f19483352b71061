"""Smooth ground: elevation as a sum of plane waves, known exactly everywhere.

Wavelengths from 700 m to 9 km carry equal slope each, so there are wide valleys and short ramps.
The fleet drives over it: elevations learned from energy can be held against the truth.
"""

from dataclasses import dataclass

import numpy as np

from fedwatt.randomness import generator
from fedwatt.synthetic.arrays import FloatArray

WAVES = 40
SHORTEST_M = 700.0
LONGEST_M = 9000.0
SLOPE_RMS = 0.022
MEAN_ELEVATION_M = 250.0


@dataclass(frozen=True, eq=False)
class Landscape:
    """Elevation = mean + Σ amplitude · cos(kx·x + ky·y + phase); all arrays [waves]."""

    mean_m: float
    amplitude_m: FloatArray
    kx: FloatArray
    ky: FloatArray
    phase: FloatArray

    def elevation_m(self, x_m: FloatArray, y_m: FloatArray) -> FloatArray:
        """Height above sea level at positions [...] in metres east and north of the centre."""
        elevation = np.full(np.shape(x_m), self.mean_m)
        # A loop over waves keeps memory at O(positions) and is as fast as one large outer product.
        waves = zip(self.amplitude_m, self.kx, self.ky, self.phase, strict=True)
        for amplitude, kx, ky, phase in waves:
            elevation += amplitude * np.cos(kx * x_m + ky * y_m + phase)
        return elevation


def draw_landscape(seed: int) -> Landscape:
    """Return the ground of the town that belongs to `seed`."""
    rng = generator(seed, "landscape")
    wavelength = np.exp(rng.uniform(np.log(SHORTEST_M), np.log(LONGEST_M), WAVES))
    direction = rng.uniform(0, 2 * np.pi, WAVES)
    wavenumber = 2 * np.pi / wavelength
    return Landscape(
        mean_m=MEAN_ELEVATION_M,
        # Mean squared slope is Σ (amplitude·wavenumber)² / 2.
        amplitude_m=SLOPE_RMS * np.sqrt(2 / WAVES) / wavenumber,
        kx=wavenumber * np.cos(direction),
        ky=wavenumber * np.sin(direction),
        phase=rng.uniform(0, 2 * np.pi, WAVES),
    )
