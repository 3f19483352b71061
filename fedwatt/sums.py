"""Sums over vehicles: named arrays that vehicles contribute and a server adds.

Model updates, error sums, weights, and the sums from which elevation maps and routes are learned
are all of this kind. A request declares the fields of a contribution; an executor returns the
total over the vehicles that contributed:

    in_process                          simulated vehicles
    deploy.server.sums.PlaceSums        connected vehicles, by secure aggregation

Updates and errors of connected vehicles are added by `deploy.server.sums.SecureSums` or, without
secure aggregation, seen one by one and bounded before they are added
(`deploy.server.plain_backend`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import RunError

FloatArray = NDArray[np.float64]

LARGEST = 2.0**24
"""Of a vehicle's sum at a node or pair; some ten thousand passes of a lorry stay far below it, and
among 10,000 vehicles sums are still exact to 2^-26 a vehicle."""

MOST_WORDS = 2**23
"""Numbers in a vehicle's message: 64 MB, with which a vehicle stays within 1 GB of memory."""

Fields = dict[str, tuple[int, float]]
"""{name: (how many, largest absolute value)}."""
Contribution = Mapping[str, FloatArray]
"""What a vehicle adds, or the total of it, by the names of `Fields`."""
Total = tuple[Contribution, frozenset[str]]
"""A total, and the names of the vehicles whose contributions are in it."""
AddUp = Callable[[Fields, int, Iterable[Contribution]], Contribution]
"""Adds the contributions of so many vehicles, as secure aggregation does
(`fedwatt.privacy.fixed_point.add_up`) or `plainly`."""


class SumRequest(Protocol):
    """A request for contributions to a sum."""

    @property
    def described(self) -> str:
        """Return what is asked for, for a log."""

    @property
    def fields(self) -> Fields:
        """Return the fields of a contribution, the same for every vehicle."""


Executor = Callable[[Any, frozenset[str]], Total]
"""Returns the total of a `SumRequest` over the vehicles named, and whose contributions are in it.
"""


def words_of(fields: Fields) -> int:
    """Return how many numbers a contribution holds."""
    return sum(size for size, _ in fields.values())


def refuse_long(fields: Fields, places: str) -> None:
    """Raise where contributions about so many `places` would be longer than a message may be."""
    words = words_of(fields)
    if words > MOST_WORDS:
        raise RunError(
            f"Sums over {places} take {words:,} numbers a vehicle, and {MOST_WORDS:,} can be sent. "
            "Choose a smaller elevation.area or a larger elevation.cell_m."
        )


def plainly(fields: Fields, vehicles: int, contributions: Iterable[Contribution]) -> Contribution:
    """Return the total of contributions in floating point."""
    total = {name: np.zeros(size) for name, (size, _) in fields.items()}
    for contribution in contributions:
        for name in total:
            total[name] = total[name] + contribution[name]
    return total


def in_process(add_up: AddUp, vehicles: Mapping[str, Any]) -> Executor:
    """Return the executor over simulated vehicles, each with what a request is answered from."""

    def total(request: Any, present: frozenset[str]) -> Total:
        contributions = (request.answer(vehicles[name]) for name in sorted(present))
        return add_up(request.fields, len(present), contributions), present

    return total
