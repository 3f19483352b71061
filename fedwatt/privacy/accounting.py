"""The ε that a private training has spent after t rounds, by the package `dp-accounting`.

A round of `PrivateAverage` is one Poisson-sampled Gaussian mechanism with probability q and noise
multiplier z. Two fleets are neighbours if one vehicle with all its trips is in one and not in the
other; with secure aggregation, if it adds its update in one and nothing in the other. Rounds,
methods and runs add up as Rényi differential privacy at the integer orders 2 to 255.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import SettingError, optional

if TYPE_CHECKING:  # torch is not needed to account
    from fedwatt.federation import Training
    from fedwatt.methods import Method
    from fedwatt.windows import Fleet


ORDERS = tuple(range(2, 256))
"""Of Rényi; fractional ones help only where ε is too large to mean anything."""


@lru_cache(maxsize=256)
def _one_round(noise_multiplier: float, probability: float) -> NDArray[np.float64]:
    """Return the Rényi ε of one round at every order.

    The accountant composes any number of rounds, but takes a quarter of a second each time; ε is
    shown after every round. Its sum over orders, which it does not show, is what rounds add up to.
    """
    library = _library()
    accountant = library.rdp.RdpAccountant(ORDERS)
    noise = library.GaussianDpEvent(noise_multiplier)
    accountant.compose(library.PoissonSampledDpEvent(probability, noise))
    spent: NDArray[np.float64] = accountant._rdp
    return spent


def _library() -> Any:
    sentence = "Privacy budgets need dp-accounting: pip install 'fedwatt[privacy]'."
    optional("dp_accounting.rdp", sentence, SettingError)
    return optional("dp_accounting", sentence, SettingError)


@dataclass(frozen=True)
class Budget:
    """The privacy budget of a training: the mechanism of each round, and δ."""

    noise_multiplier: float  # z
    probability: float  # q; 1 where sampling is not counted on
    delta: float  # δ
    repeated: int = 0
    """Rounds that were done twice, because a server was killed after it had shown their models."""

    def epsilon(self, rounds: int) -> float:
        """Return ε after `rounds` rounds and those that were repeated; infinite without noise.

        >>> round(Budget(1.0, 0.01, 1e-5).epsilon(1000), 4)
        2.1078
        """
        count = rounds + self.repeated
        if not count or not self.probability:
            return 0.0
        if self.noise_multiplier == 0:
            return inf
        total = count * _one_round(self.noise_multiplier, self.probability)
        epsilon, _ = _library().rdp.compute_epsilon(ORDERS, total, self.delta)
        return float(epsilon)

    @property
    def seen_by_server(self) -> "Budget":
        """Return the budget against a server that may know who was drawn: q = 1."""
        return replace(self, probability=1.0)


def budget_for(method: "Method", training: "Training", fleet: "Fleet") -> Budget | None:
    """Return the privacy budget of a method on a fleet; None if it is not private."""
    population = int((~fleet.held_out).sum())
    return budget(method, participation=training.participation, population=population)


def budget(method: "Method", *, participation: float, population: int) -> Budget | None:
    """Return the budget of a method in a federation of K = `population` vehicles; None: not
    private.

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
