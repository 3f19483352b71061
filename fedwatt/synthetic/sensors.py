"""Sensor model: noise, drift, scale and resolution."""

import numpy as np

from fedwatt.synthetic.arrays import FloatArray, IntArray


def rounded(values: FloatArray, resolution: float) -> FloatArray:
    """Nearest multiple of the resolution.

    >>> rounded(np.array([0.26, -0.6]), 0.5)
    array([ 0.5, -0.5])
    """
    return np.round(values / resolution) * resolution


def wander(
    trip: IntArray, second: IntArray, spread: float, memory_s: int, rng: np.random.Generator
) -> FloatArray:
    """Slow error of about `spread` that forgets itself over `memory_s`, afresh in each trip."""
    knots_before = np.concatenate([[0], np.cumsum(np.bincount(trip) // memory_s + 2)])
    knots = spread * rng.normal(size=knots_before[-1])
    knot, within = np.divmod(second, memory_s)
    at = knots_before[trip] + knot
    share = within / memory_s
    return np.asarray(knots[at] * (1 - share) + knots[at + 1] * share)
