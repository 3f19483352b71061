"""Vehicles that draw for themselves whether they add to a private sum.

Under masks nobody sees who added what, so Poisson sampling needs no server: each vehicle adds its
Δ̃_k with probability q, drawn from its own operating system, and noise in any case. The server does
not know who was drawn, unless it looks at how long a reply took, and cannot choose a single one.
"""

from secrets import randbits
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedwatt.federation import Training
    from fedwatt.methods import Method


def draws_on_board(method: "Method", training: "Training") -> bool:
    """Return whether the vehicles of a secure sum draw for themselves."""
    return method.server.private and training.sampling == "poisson"


def drawn(probability: float) -> bool:
    """Return whether a vehicle is in; true with this probability."""
    return randbits(53) * 2.0**-53 < probability
