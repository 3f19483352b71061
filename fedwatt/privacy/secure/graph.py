"""The graph of a sum: the vehicles that share masks and secrets, all or k neighbours on a ring.

Bell et al., *Secure Single-Server Aggregation with (Poly)Logarithmic Overhead*, CCS 2020: masks
between all pairs are more than is needed. Vehicles stand on a ring in the order of a digest of
their names and the exchange, and each is paired with the k/2 on either side of it (a Harary graph,
connected whoever drops out up to k - 1 in a row). With k = 6 log₂ n and a fifth of the vehicles
gone, the survivors of a group are fewer than the half that its secrets need with probability below
1e-4 a vehicle.

Everybody works the graph out from the list of names and the terms of the exchange, so the server
cannot deal each vehicle its neighbours. But it chooses the terms, and can try many until their ring
suits it. Of the 60 neighbours in a fleet of 1,000, 11 must help it (`signatures_needed`); a try
seats as many beside a given vehicle with probability P(Binomial(60, f) ≥ 11): 2e-11 where f = 1 %
of the fleet help, 0.03 where 10 % do. To prevent it, all vehicles would have to commit to random
numbers before the terms are known, by one more message; that is not built in.
"""

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import ceil, log2

from fedwatt.privacy.secure_settings import SecureTerms


def degree(vehicles: int) -> int:
    """Return k, the even number of neighbours; all other vehicles where they are few.

    >>> [degree(vehicles) for vehicles in (3, 31, 32, 100, 1000)]
    [2, 30, 30, 40, 60]
    """
    return min(vehicles - 1, 2 * ceil(3 * log2(vehicles)))


@dataclass(frozen=True)
class Graph:
    """The pairs of an exchange between the vehicles `names`, ascending."""

    terms: SecureTerms
    names: tuple[str, ...]

    @cached_property
    def _ring(self) -> list[str]:
        salt = self.terms.digest
        return sorted(self.names, key=lambda name: sha256(salt + name.encode()).digest())

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self._ring)}

    @property
    def complete(self) -> bool:
        """Return whether all are paired with all."""
        return degree(len(self.names)) >= len(self.names) - 1

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return the vehicles that `name` shares masks with, ascending."""
        if self.complete:
            return tuple(other for other in self.names if other != name)
        ring = self._ring
        at = self._place[name]
        half = degree(len(self.names)) // 2
        steps = (*range(-half, 0), *range(1, half + 1))
        return tuple(sorted(ring[(at + step) % len(ring)] for step in steps))

    def group(self, name: str) -> tuple[str, ...]:
        """Return `name` and its neighbours, ascending, which hold shares of its secrets."""
        return tuple(sorted((*self.neighbours(name), name)))

    @property
    def shares_needed(self) -> int:
        """Return how many shares reconstruct a secret; more than half of a group."""
        size = degree(len(self.names)) + 1
        return self.terms.threshold if self.complete else size // 2 + 1

    @property
    def signatures_needed(self) -> int:
        """Return how many members of a group must have signed the same survivors.

        On the ring two halves could be told different things. With two thirds for each, those in
        between get no agreement, and what is left of a group that would tell a vehicle's seed and
        of one that would tell its mask key are together two thirds of it: never both more than
        half, unless more than a sixth of the group help the server.
        """
        size = degree(len(self.names)) + 1
        return self.terms.threshold if self.complete else ceil(2 * size / 3)
