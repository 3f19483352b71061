"""Gaussian noise that nobody can repeat: whole numbers, from the operating system's generator.

The discrete Gaussian (Canonne, Kamath and Steinke, NeurIPS 2020) has P(k) ∝ exp(-k²/2σ²) on whole
numbers k. Noise and data on one grid of whole numbers leave no low bits that tell of the data, as
sums of floating-point numbers do (Mironov, CCS 2012). Their algorithm 3, for many numbers at once:

    k from the discrete Laplace, P(k) ∝ exp(-|k|/t) with t = ⌊σ⌋ + 1
    kept with probability exp(-(|k| - σ²/t)² / 2σ²)

Uniform numbers have 53 bits, so what is less likely than 2^-53 (beyond 8 σ) is off by that much.
"""

import os
from collections.abc import Callable
from math import floor, frexp
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Entropy = Callable[[int], bytes]

GRID: Final = 2.0**-30
"""Of normal numbers from `SystemNoise`."""
FINEST: Final = 30
"""Bits of a standard deviation in steps of its grid, above which a grid is made coarser."""
LEAST_DEVIATION: Final = 4.0
"""Steps of a standard deviation, below which sums of discrete Gaussians are none."""


def discrete_gaussian(deviation: float, size: int, entropy: Entropy = os.urandom) -> IntArray:
    """`size` whole numbers with P(k) ∝ exp(-k²/2σ²), σ = `deviation` > 0."""
    scale = floor(deviation) + 1
    draws = np.zeros(0, dtype=np.int64)
    while len(draws) < size:
        # About two of three are kept.
        tries = 2 * (size - len(draws)) + 16
        uniform = _uniform(tries, entropy)
        accept = _uniform(tries, entropy)
        sign = np.frombuffer(entropy(tries), dtype=np.uint8) & 1
        # ⌊-t ln u⌋ is geometric; 0 with both signs would count twice.
        size_of = np.floor(-scale * np.log(uniform)).astype(np.int64)
        away = (size_of - deviation**2 / scale) / deviation
        accepted = (accept < np.exp(-(away**2) / 2)) & ~((size_of == 0) & (sign == 1))
        draws = np.concatenate([draws, np.where(sign == 1, -size_of, size_of)[accepted]])
    return draws[:size]


def _uniform(size: int, entropy: Entropy) -> FloatArray:
    """Numbers in (0, 1], each of 53 random bits."""
    bits = np.frombuffer(entropy(8 * size), dtype="<u8") >> 11
    return (bits.astype(np.float64) + 1.0) * 2.0**-53


class SystemNoise:
    """Stands where a generator stands that is asked for normal numbers."""

    def standard_normal(self, size: int | None = None) -> Any:
        """Return normal numbers, multiples of `GRID`."""
        draws = discrete_gaussian(1 / GRID, 1 if size is None else size) * GRID
        return float(draws[0]) if size is None else draws


def on_grid(values: FloatArray, step: float) -> FloatArray:
    """`values`, each moved to the nearest multiple of `step`.

    >>> on_grid(np.array([0.3, -1.1]), 0.25).tolist()
    [0.25, -1.0]
    """
    return np.rint(values / step) * step


def grid_of_noise(deviation: float, step: float) -> float:
    """Return the grid for noise of this deviation, a power of two times `step`: not finer than
    2^-31 σ.

    >>> grid_of_noise(1.0, 2.0**-50) == 2.0**-30, grid_of_noise(1.0, 2.0**-20) == 2.0**-20
    (True, True)
    """
    _, exponent = frexp(deviation / step)
    return step * 2.0 ** max(0, exponent - 1 - FINEST)
