"""Availability, participation and lost updates, drawn per round.

Paper, section on client churn: A_t is the set of available vehicles, |S_t| = max(⌈C·|A_t|⌉, 1) of
them take part. The draws depend on the seed and the round alone, so every method sees the same.
"""

from math import ceil

import numpy as np
from numpy.typing import NDArray

from fedwatt.federation.settings import Availability, Training
from fedwatt.randomness import generator

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


def first_available(seed: int, vehicles: int, availability: Availability) -> BoolArray:
    """A_0 as a mask [K]."""
    if availability.initially == 1:  # no draw is as high as 1
        return np.ones(vehicles, dtype=bool)
    return generator(seed, "churn", 0).random(vehicles) < availability.initially


def next_available(
    seed: int, round: int, before: BoolArray, availability: Availability
) -> BoolArray:
    """A_t as a mask [K], from A_{t-1}: each vehicle leaves or joins on its own."""
    if availability.p_leave == availability.p_join == 0:  # no draw is below 0
        return before
    draw = generator(seed, "churn", round).random(len(before))
    return np.where(before, draw >= availability.p_leave, draw < availability.p_join)


def participants(
    seed: int, round: int, available: BoolArray, participation: float, *, sampling: str = "fixed"
) -> IntArray:
    """S_t in ascending order; empty if nobody is available (or, with "poisson", drawn).

    >>> participants(1, 0, np.array([True, False, True, True, True]), 0.5).size
    2
    """
    rng = generator(seed, "participation", round)
    if sampling == "poisson":
        # One draw for every vehicle, there or not, so that churn moves nobody else's draw.
        return np.flatnonzero(available & (rng.random(len(available)) < participation))
    # Where all are there, places need no list: the draw then takes as long as its outcome.
    everybody = bool(available.all())
    candidates = len(available) if everybody else np.flatnonzero(available)
    most = len(available) if everybody else np.size(candidates)
    count = min(participant_count(most, participation), most)
    return np.sort(rng.choice(candidates, size=count, replace=False))


def participant_count(available: int, participation: float) -> int:
    """max(⌈C·|A_t|⌉, 1)."""
    # 0.07 * 100 is 7.000000000000001 in floating point; its ceiling must still be 7.
    return max(ceil(round(participation * available, 9)), 1)


def lost_replies(seed: int, round: int, vehicles: int, availability: Availability) -> BoolArray:
    """Mask [K] of the vehicles whose reply would not arrive in this round."""
    if availability.reply_loss == 0:  # no draw is below 0
        return np.zeros(vehicles, dtype=bool)
    return generator(seed, "replies", round).random(vehicles) < availability.reply_loss


def device_speed(seed: int, vehicle: str, availability: Availability) -> float:
    """Relative speed of a vehicle's computer, the same in all rounds."""
    if len(availability.speeds) == 1:
        return availability.speeds[0]
    return float(generator(seed, "device", vehicle).choice(availability.speeds))


def local_steps(windows: int, speed: float, training: Training, availability: Availability) -> int:
    """H_k of a vehicle with `windows` training windows; 0 if it hands in nothing.

    >>> local_steps(130, 1.0, Training(epochs=2, batch=64), Availability())
    6
    >>> local_steps(130, 1 / 3, Training(epochs=2, batch=64), Availability(own_deadline=1.0))
    2
    """
    steps = training.steps or training.epochs * -(-windows // training.batch)
    limits = [d for d in (availability.deadline, availability.own_deadline * steps) if d]
    if not limits:
        return steps
    # 100 * 0.29 is 28.999999999999996 in floating point; that is 29 steps.
    possible = int(round(min(limits) * speed, 9))
    if possible < steps and availability.stragglers == "drop":
        return 0
    return min(steps, possible)
