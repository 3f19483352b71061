"""The ε that a private training has spent after t rounds, by Rényi differential privacy (`rdp`).

A round of `PrivateAverage` is one Poisson-sampled Gaussian mechanism with probability q and noise
multiplier z. Two fleets are neighbours if one vehicle with all its trips is in one and not in the
other; under masks, if it adds its reply in one and nothing in the other. The numbers are those of
Google's `dp-accounting` (a test).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from fedwatt.errors import SettingError, check
from fedwatt.privacy.rdp import FloatArray, sampled_gaussian, to_epsilon

if TYPE_CHECKING:  # torch is not needed to account
    from fedwatt.federation import Training
    from fedwatt.methods import Method
    from fedwatt.windows import Fleet


@dataclass(frozen=True)
class Budget:
    """The privacy of a training: what each round is, and at which δ it is stated."""

    noise_multiplier: float  # z
    probability: float  # q; 1 where sampling is not counted on
    delta: float  # δ
    sensitivity: float = 1.0
    """By how many clip norms one vehicle can move a round's sum. 1, unless a round stands or falls
    with single vehicles: where it needs m replies to count, one more or less moves it by m."""
    repeated: int = 0
    """Rounds that were done twice, because a server was killed after it had shown their models."""

    def __post_init__(self) -> None:
        check(self, "sensitivity", self.sensitivity >= 1, "at least 1")

    def epsilon(self, rounds: int) -> float:
        """ε after `rounds` rounds and those that were repeated; infinite without noise.

        >>> round(Budget(1.0, 0.01, 1e-5).epsilon(1000), 4)
        2.1078
        """
        if rounds + self.repeated == 0:
            return 0.0
        return to_epsilon((rounds + self.repeated) * self.one_round, self.delta)

    @cached_property
    def one_round(self) -> FloatArray:
        """ε_RDP of one round at every order."""
        return sampled_gaussian(self.probability, self.noise_multiplier / self.sensitivity)

    @property
    def seen_by_server(self) -> "Budget":
        """The same for a server that sees noisy sums only, and may know who was drawn: q = 1."""
        return replace(self, probability=1.0)


def budget_for(method: "Method", training: "Training", fleet: "Fleet") -> Budget | None:
    """What a method that trains on a fleet gives away; None if it is not private."""
    population = int((~fleet.held_out).sum())
    return budget(method, participation=training.participation, population=population)


def budget(method: "Method", *, participation: float, population: int) -> Budget | None:
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
