"""Put the rows of a trip in time order, once each.

Rows out of place by a few seconds are sorted. A clock that jumps far back was reset, so what
follows is another stretch of driving and becomes a part of its own: sorting would interleave them.
A clock that jumps back again and again was not reset each time: the rows are in another order, the
last first or any, and all of them are sorted.
"""

from dataclasses import replace

import numpy as np

from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.trip import FloatArray, IntArray, RawTrip

RESET_S = 10.0
SHUFFLED = 0.1
"""Share of the rows before which time goes back, from which on rows are in no order of time."""


def in_order(trip: RawTrip) -> tuple[list[RawTrip], Account]:
    """Parts of the trip with strictly increasing time, and what that took.

    Of several rows at one time the last wins, channel by channel: a reading replaces "no reading".
    """
    finite = np.isfinite(trip.time_s)
    account = Account.of("dropped", "rows", int((~finite).sum()), "no time")
    if not finite.all():
        trip = trip.take(finite)
    steps = np.diff(trip.time_s)
    if trip.rows < 2 or (steps > 0).all():
        return ([trip] if trip.rows else []), account
    trip, copies_account = _without_doubles(trip)
    account += copies_account
    if int((np.diff(trip.time_s) < 0).sum()) > max(1.0, SHUFFLED * trip.rows):
        trip, sorted_account = _sort(trip, "not in order of time, sorted")
        return [trip], account + sorted_account
    resets = np.flatnonzero(np.diff(trip.time_s) < -RESET_S) + 1
    account += Account.of("repaired", "trips", len(resets), "cut where the clock was set back")
    parts = []
    for recorded in trip.cut(resets):
        part, sorted_account = _sort(recorded)
        parts.append(part)
        account += sorted_account
    return parts, account


def _without_doubles(trip: RawTrip) -> tuple[RawTrip, Account]:
    """Every row once; of equal rows the first stays."""
    table = np.ascontiguousarray(np.column_stack([trip.time_s, *trip.channels.values()]))
    # Compared as bytes, so that two missing readings are equal.
    rows = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    first = np.sort(np.unique(rows, return_index=True)[1])
    account = Account.of("dropped", "rows", trip.rows - len(first), "row written twice")
    return (trip.take(first) if account.entries else trip), account


def _sort(trip: RawTrip, reason: str = "clock went backwards, sorted") -> tuple[RawTrip, Account]:
    late = int((np.diff(trip.time_s) < 0).sum())
    account = Account.of("repaired", "rows", late, reason)
    if late:
        trip = trip.take(np.argsort(trip.time_s, kind="stable"))
    first = np.flatnonzero(np.r_[True, np.diff(trip.time_s) > 0])
    doubles = trip.rows - len(first)
    if not doubles:
        return trip, account
    account += Account.of("dropped", "rows", doubles, "second row of the same time")
    channels = {name: _last_reading(values, first) for name, values in trip.channels.items()}
    return replace(trip, time_s=trip.time_s[first], channels=channels), account


def _last_reading(values: FloatArray, first: IntArray) -> FloatArray:
    """Last value that is not NaN in each run of rows that starts at `first`, shape [runs].

    >>> _last_reading(np.array([1.0, 2.0, np.nan, 5.0, np.nan]), np.array([0, 1, 3]))
    array([1., 2., 5.])
    """
    rows = np.where(np.isfinite(values), np.arange(len(values)), -1)
    last = np.maximum.reduceat(rows, first)
    return np.where(last >= first, values[np.maximum(last, 0)], np.nan)


def without_copies(trip: RawTrip, source: IntArray) -> tuple[RawTrip, Account]:
    """Rows of one recording of the trip, where several files (`source` [rows]) hold it.

    Files that overlap in time hold the same drive twice: the one with most rows is kept. Files that
    follow each other hold its pieces, and all are kept, in order of time.
    """
    names = np.unique(source)
    if len(names) < 2:
        return trip, Account()
    spans: list[tuple[float, float, IntArray]] = []
    for rows in sorted((np.flatnonzero(source == name) for name in names), key=len, reverse=True):
        begin = np.nanmin(trip.time_s[rows])
        end = np.nanmax(trip.time_s[rows])
        if all(end < other_begin or begin > other_end for other_begin, other_end, _ in spans):
            spans.append((float(begin), float(end), rows))
    spans.sort(key=lambda span: span[0])
    rows_kept = np.concatenate([rows for _, _, rows in spans])
    copies = trip.rows - len(rows_kept)
    return trip.take(rows_kept), Account.of("dropped", "rows", copies, "trip also in another file")
