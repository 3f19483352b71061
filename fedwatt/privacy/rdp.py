"""Rényi differential privacy of a Gaussian mechanism whose vehicles are sampled independently.

At integer orders a (Mironov, Talwar and Zhang, 2019), with sampling probability q and noise
multiplier z, for one round:

    ε_RDP(a) = log( Σ_i C(a,i) (1-q)^(a-i) q^i e^(i(i-1)/(2z²)) ) / (a - 1),       q = 1: a/(2z²)

Rounds, methods and runs add up, and turn into (ε, δ) at the order that gives the least ε (Canonne,
Kamath and Steinke, 2020, proposition 12):

    ε = min_a  ε_RDP(a) + log((a-1)/a) - (log δ + log a)/(a-1)
"""

from math import expm1, inf, lgamma, log, log1p
from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

ORDERS: Final = tuple(range(2, 256))
"""Integer orders only: fractional ones help where ε is too large to mean anything."""


def sampled_gaussian(probability: float, noise_multiplier: float) -> FloatArray:
    """ε_RDP of one round at every order; infinite without noise."""
    if noise_multiplier == 0:
        return np.full(len(ORDERS), inf if probability else 0.0)
    exponent = 1 / (2 * noise_multiplier**2)
    if probability == 1:
        return np.array([order * exponent for order in ORDERS])
    if probability == 0:
        return np.zeros(len(ORDERS))
    return np.array([_moment(order, probability, exponent) for order in ORDERS])


def _moment(order: int, probability: float, exponent: float) -> float:
    i = np.arange(order + 1)
    choose = [lgamma(order + 1) - lgamma(k + 1) - lgamma(order - k + 1) for k in i]
    drawn = i * log(probability) + (order - i) * log1p(-probability)
    terms = np.array(choose) + drawn + i * (i - 1) * exponent
    largest = float(terms.max())
    return (largest + log(float(np.exp(terms - largest).sum()))) / (order - 1)


def to_epsilon(rdp: FloatArray, delta: float) -> float:
    """The least ε at δ of a total ε_RDP at every order."""
    found = inf
    for order, own in zip(ORDERS, rdp, strict=True):
        if delta**2 + expm1(-own) > 0:
            return 0.0  # so little that δ alone covers it
        found = min(found, own + log1p(-1 / order) - log(delta * order) / (order - 1))
    return max(0.0, float(found))
