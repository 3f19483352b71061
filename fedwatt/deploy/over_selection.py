"""Vehicles called beyond what a round needs, so that it need not wait for the slowest.

Bonawitz et al., MLSys 2019, section 2.2: more vehicles are called than are wanted, and the round
closes when as many as are wanted have replied. Who is late trained in vain. Which replies count
then depends on who is quick, so such a run is not that of a simulation.
"""

from math import ceil

import numpy as np
from torch import Tensor

from fedwatt.engine.call import Call
from fedwatt.federation.members import Members
from fedwatt.federation.terms import Terms
from fedwatt.randomness import generator


def reserves(
    terms: Terms, share: float, round: int, members: Members, available: Tensor, calls: list[Call]
) -> list[Call]:
    """⌈share · |S_t|⌉ further vehicles of those `available` [1, K]; fewer if there are no more."""
    called = {call.vehicle for call in calls}
    there = (int(members.population[place]) for place in np.flatnonzero(available[0].numpy()))
    others = [vehicle for vehicle in there if vehicle not in called]
    count = min(ceil(share * len(calls)), len(others))
    chosen = generator(terms.seeds[0], "over-selection", round).choice(others, count, replace=False)
    found = []
    for vehicle in sorted(int(one) for one in chosen):
        speed = terms.speed(0, members.name(vehicle))
        found.append(Call(0, vehicle, terms.steps(members.windows(vehicle), speed)))
    return found
