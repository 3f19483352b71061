"""When a vehicle is charged: between trips, once the next might not be made on what is left."""

import numpy as np
from numpy.random import Generator

from fedwatt.synthetic.arrays import FloatArray, IntArray
from fedwatt.synthetic.battery import Drives, Pack

RECHARGE_BELOW_SOC = 0.4
LEAST_SOC = 0.1
CHARGED_TO_SOC = (0.8, 0.95)
# Heat inside the pack and its lower voltage under load cost a little more charge than energy says.
MARGIN = 1.06


def charge_between_trips(
    pack: Pack, trip: IntArray, demand_w: FloatArray, rng: Generator
) -> Drives:
    """Return the starts of trips, and the state of charge of those that follow a charge.

    `trip` [seconds] counts from 0. Decided on the energy asked for, before any battery is solved.
    """
    first = np.flatnonzero(np.diff(trip, prepend=-1))
    used = MARGIN * np.add.reduceat(demand_w, first) / 3600 / pack.capacity_wh
    start_soc = np.full(len(first), np.nan)
    now = 0.0
    for number, share in enumerate(used):
        if now < RECHARGE_BELOW_SOC or now - share < LEAST_SOC:
            now = start_soc[number] = float(rng.uniform(*CHARGED_TO_SOC))
        now -= share
    return Drives(first, start_soc)
