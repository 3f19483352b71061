"""Split a vehicle's rows into its trips.

A trip is what shares a trip number and a day: VED's day is constant within a trip, so a number used
again on another day is another trip.
"""

from collections.abc import Callable

import numpy as np

from fedwatt.data.cleaning.account import Account
from fedwatt.data.cleaning.order import without_copies
from fedwatt.data.cleaning.records import FloatArray, RawTrip

# The first columns of every spill; channels follow.
KEYS = ("source", "day", "trip", "time_s")
# VED's day counts from 1 November 2017; a second is 1.2e-5 of it.
SAME_DAY = 1e-4


def split_trips(
    matrix: FloatArray, columns: tuple[str, ...], name: Callable[[int], str]
) -> tuple[list[RawTrip], Account]:
    """The trips in `matrix` [rows, columns], by ascending number, and the copies left out.

    `columns` starts with `KEYS`; rows of a trip keep their order. Channels without any reading in
    the vehicle are left out.
    """
    source, day, trip = (matrix[:, columns.index(key)] for key in ("source", "day", "trip"))
    day = np.round(np.nan_to_num(day) / SAME_DAY)
    order = np.lexsort((day, trip))
    table = np.ascontiguousarray(matrix[order].T)
    source, day, trip = source[order], day[order], trip[order]
    borders = np.flatnonzero((np.diff(trip) != 0) | (np.diff(day) != 0)) + 1
    channels = [c for c in range(len(KEYS), len(columns)) if np.isfinite(table[c]).any()]
    trips, accounts = [], []
    starts = [0, *borders.tolist()]
    for start, stop in zip(starts, [*starts[1:], len(trip)], strict=True):
        raw = RawTrip(
            name(int(trip[start])),
            table[columns.index("time_s"), start:stop],
            {columns[c]: table[c, start:stop] for c in channels},
        )
        raw, account = without_copies(raw, source[start:stop].astype(np.int64))
        trips.append(raw)
        accounts.append(account)
    return trips, Account.total(accounts)
