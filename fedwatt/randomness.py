"""Random draws: keyed generators that can be repeated, and noise that nobody can repeat.

Every draw of the library comes from `generator(seed, purpose, *keys)`. Two draws share a stream
only if all their keys are equal, so switching a mechanism on or off, or training vehicles in
another order or stack, moves no other draw. A vehicle is keyed by its name, never by its place in a
fleet: it draws the same batches alone, simulated or deployed.

Noise is Gaussian, in whole numbers, from the operating system's generator. The discrete Gaussian
(Canonne, Kamath and Steinke, NeurIPS 2020) has P(k) ∝ exp(-k²/2σ²) on whole numbers k. Noise and
data on one grid of whole numbers leave no low bits that tell of the data, as sums of floating-point
numbers do (Mironov, CCS 2012). Their algorithm 3, for many numbers at once:

    k from the discrete Laplace, P(k) ∝ exp(-|k|/t) with t = ⌊σ⌋ + 1
    accepted with probability exp(-(|k| - σ²/t)² / 2σ²)

Uniform numbers have 53 bits, so what is less likely than 2^-53 (beyond 8 σ) is off by that much.
"""

import os
from collections.abc import Callable, Iterable
from hashlib import blake2b
from math import floor, frexp
from typing import Any

import numpy as np
from numpy.typing import NDArray


def generator(seed: int, purpose: str, *keys: int | str) -> np.random.Generator:
    """Return an independent generator for (seed, purpose, keys).

    >>> a = generator(1, "batches", 3, "car-07").integers(100, size=3)
    >>> b = generator(1, "batches", 3, "car-07").integers(100, size=3)
    >>> bool((a == b).all())
    True
    """
    return np.random.Generator(np.random.Philox(key=key_of(seed, purpose, *keys)))


def key_of(seed: int, purpose: str, *keys: int | str) -> int:
    """Return the 128-bit key of (seed, purpose, keys)."""
    text = "\x1f".join(f"{type(key).__name__}:{key}" for key in (seed, purpose, *keys))
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little")


def first_uniforms(seed: int, purpose: str, names: Iterable[str]) -> NDArray[np.float64]:
    """Return `generator(seed, purpose, name).random()` of each name, [names], 100 times as fast.

    A generator is Philox4x64-10 (Salmon et al., SC 2011) with a key of its own; here the first
    block of all of them is worked out at once.

    >>> draws = first_uniforms(1, "held out", ["car-1", "car-2"])
    >>> bool(draws[1] == generator(1, "held out", "car-2").random())
    True
    """
    head = "\x1f".join(f"{type(key).__name__}:{key}" for key in (seed, purpose)) + "\x1fstr:"
    digests = b"".join(blake2b((head + n).encode(), digest_size=16).digest() for n in names)
    low, high = np.frombuffer(digests, dtype="<u8").reshape(-1, 2).T.copy()
    # A block is made of a counter of four words, of which the first block has 1 in the first.
    a, b, c, d = (np.full(len(low), word, dtype=np.uint64) for word in (1, 0, 0, 0))
    for _ in range(10):
        a_high, a_low = _product(a, 0xD2E7470EE14C6C93)
        c_high, c_low = _product(c, 0xCA5A826395121157)
        a, b, c, d = c_high ^ b ^ low, c_low, a_high ^ d ^ high, a_low
        low, high = low + np.uint64(0x9E3779B97F4A7C15), high + np.uint64(0xBB67AE8584CAA73B)
    return np.asarray((a >> np.uint64(11)) * 2.0**-53)


def _product(values: NDArray[np.uint64], factor: int) -> tuple[NDArray[np.uint64], ...]:
    """Return (high, low) 64 bits of the 128 of each value times a factor."""
    half = np.uint64(32)
    mask = np.uint64(2**32 - 1)
    low = values & mask
    high = values >> half
    f_low = np.uint64(factor & (2**32 - 1))
    f_high = np.uint64(factor >> 32)
    middle = high * f_low + ((low * f_low) >> half)
    carry = (middle & mask) + low * f_high
    return high * f_high + (middle >> half) + (carry >> half), values * np.uint64(factor)


IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Entropy = Callable[[int], bytes]

GRID = 2.0**-30
"""Of normal numbers from `SystemNoise`."""
FINEST = 30
"""Bits of a standard deviation in steps of its grid, above which a grid is made coarser."""
LEAST_DEVIATION = 4.0
"""Steps of a standard deviation, below which sums of discrete Gaussians are none."""


def discrete_gaussian(deviation: float, size: int, entropy: Entropy = os.urandom) -> IntArray:
    """Draw `size` whole numbers with P(k) ∝ exp(-k²/2σ²), σ = `deviation` > 0."""
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
    """Draw numbers in (0, 1] of 53 random bits each."""
    bits = np.frombuffer(entropy(8 * size), dtype="<u8") >> 11
    return (bits.astype(np.float64) + 1.0) * 2.0**-53


class SystemNoise:
    """Normal numbers from the operating system's randomness, in place of a seeded generator."""

    def standard_normal(self, size: int | None = None) -> Any:
        """Return normal numbers, multiples of `GRID`."""
        draws = discrete_gaussian(1 / GRID, 1 if size is None else size) * GRID
        return float(draws[0]) if size is None else draws


def on_grid(values: FloatArray, step: float) -> FloatArray:
    """Round `values` to the nearest multiple of `step`.

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
