"""The ε that a private training has spent after t rounds, by Rényi differential privacy.

A round of `PrivateAverage` is one Poisson-sampled Gaussian mechanism with probability q and noise
multiplier z. Its Rényi divergences at integer orders a (Mironov, Talwar and Zhang, 2019) add up
over rounds and turn into (ε, δ) at the order that gives the least ε:

    ε_RDP(a) = log( Σ_i C(a,i) (1-q)^(a-i) q^i e^(i(i-1)/(2z²)) ) / (a - 1),       q = 1: a/(2z²)
    ε = min_a  T·ε_RDP(a) + log((a-1)/a) - (log δ + log a)/(a-1)

Two fleets are neighbours if one vehicle with all its trips is in one and not in the other. The
numbers are those of Google's `dp-accounting`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import SettingError, optional
from fedwatt.methods import Method

ORDERS = tuple(range(2, 256))
"""Integer orders only: fractional ones help where ε is too large to mean anything, and the
accountant's series for them does not always converge."""


@dataclass(frozen=True)
class Budget:
    """The privacy of a training: what each round is, and at which δ it is stated."""

    noise_multiplier: float  # z
    probability: float  # q; 1 where sampling is not counted on
    delta: float  # δ

    def epsilon(self, rounds: int) -> float:
        """ε after `rounds` rounds; infinite without noise.

        >>> round(Budget(1.0, 0.01, 1e-5).epsilon(1000), 4)
        2.1078
        """
        if rounds == 0:
            return 0.0
        to_epsilon = _library().rdp.rdp_privacy_accountant.compute_epsilon
        return float(to_epsilon(ORDERS, rounds * self._one_round, self.delta)[0])

    @cached_property
    def _one_round(self) -> NDArray[np.float64]:
        """ε_RDP of one round at every order."""
        library = _library()
        noise = library.GaussianDpEvent(self.noise_multiplier)
        accountant = library.rdp.RdpAccountant(ORDERS)
        accountant.compose(library.PoissonSampledDpEvent(self.probability, noise))
        return np.asarray(accountant.rdp)


def _library() -> Any:
    """`dp-accounting`, which takes a while to import and comes with an extra."""
    needed = "Accounting for privacy needs dp-accounting: pip install 'fedwatt[privacy]'."
    return optional("dp_accounting", needed, SettingError)


def budget(method: Method, *, participation: float, population: int) -> Budget | None:
    """The budget of a method in a federation of K = `population` vehicles; None: not private.

    δ must stay below 1/K: at 1/K, publishing one vehicle's data in full would count as private.
    """
    mechanism = method.server.mechanism
    if mechanism is None:
        return None
    delta = mechanism.delta or max(population, 2) ** -1.1
    if delta * population >= 1 and population > 1:
        raise SettingError(
            f"Method '{method.name}': privacy_delta must be below 1/K = 1/{population}, got "
            f"{delta:g}. Leave it out for K^-1.1."
        )
    probability = participation if mechanism.amplified else 1.0
    return Budget(mechanism.noise_multiplier, probability, delta)
