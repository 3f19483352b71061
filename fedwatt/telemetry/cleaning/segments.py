"""Put rows in time order, cut trips at gaps, split recordings at pauses.

Rows out of place by a few seconds are sorted. A clock that jumps far back was reset, so what
follows becomes a part of its own. A clock that jumps back again and again was not reset each time:
the rows are in another order, and all of them are sorted.

A trip is cut where the time between two readings of speed, or of a pack signal the energy comes
from, exceeds the limit; shorter gaps are bridged by resampling. A standing car has its own limit:
VED writes a row when something changes, and its receiver reports every 30 s at standstill, so 98.6
% of its gaps over 10 s lie between two rows of speed 0, where nothing changed and nothing was
lost.

Where no column names trips, a pause ends one, driven or parked: a stand longer than the pause ends
the trip, and its rows are dropped and counted.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from fedwatt.telemetry.cleaning import Cleaning
from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.cleaning.resample import energy_source, forward_filled
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray, RawTrip

RESET_S = 10.0
SAME_TIME = "second row of the same time"
SHUFFLED = 0.1
"""Share of the rows before which time goes back, from which on rows are in no order of time."""


def in_order(trip: RawTrip) -> tuple[list[RawTrip], Account]:
    """Return parts of the trip with strictly increasing time, and an account of the changes.

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
    """Drop repeated rows; the first of equal rows stays."""
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
    channels = {name: _last_reading(values, first) for name, values in trip.channels.items()}
    # Loggers of events write a row for each signal: nothing of them is lost.
    lost = any(
        np.isfinite(v).sum() > np.isfinite(channels[n]).sum() for n, v in trip.channels.items()
    )
    reason = SAME_TIME if lost else "merged with the row of the same time"
    account += Account.of("dropped", "rows", doubles, reason)
    return replace(trip, time_s=trip.time_s[first], channels=channels), account


def _last_reading(values: FloatArray, first: IntArray) -> FloatArray:
    """Return the last finite value of each run of rows that starts at `first`, [runs].

    >>> _last_reading(np.array([1.0, 2.0, np.nan, 5.0, np.nan]), np.array([0, 1, 3]))
    array([1., 2., 5.])
    """
    rows = np.where(np.isfinite(values), np.arange(len(values)), -1)
    last = np.maximum.reduceat(rows, first)
    return np.where(last >= first, values[np.maximum(last, 0)], np.nan)


def without_copies(trip: RawTrip, source: IntArray) -> tuple[RawTrip, Account]:
    """Drop copies of a trip that several files (`source` [rows]) hold.

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


# Steps of energy are not a state that could be held.
HELD_ESSENTIALS = ("voltage_v", "current_a", "power_w", "energy_total_wh")


def cut_at_gaps(trip: RawTrip, cleaning: Cleaning) -> tuple[list[RawTrip], Account]:
    """Return parts in which no essential channel is silent for longer than allowed."""
    maximum_gap_s = cleaning.maximum_gap_s
    essentials = ("speed_mps", *energy_source(trip))
    covered = np.ones(trip.rows, dtype=bool)
    accounts = []
    for name in essentials:
        here = _covered(trip.time_s, trip.channels[name], maximum_gap_s)
        lost = int((covered & ~here).sum())
        reason = f"no {name} for over {maximum_gap_s:g} s"
        accounts.append(Account.of("dropped", "rows", lost, reason))
        covered &= here
    # Filled before cutting: a part may begin with a value read just before it.
    filled = {n: forward_filled(trip.channels[n]) for n in essentials if n in HELD_ESSENTIALS}
    filled_trip = trip.with_channels(filled)
    if not covered.all():
        filled_trip = filled_trip.take(covered)
    stands = forward_filled(filled_trip.channels["speed_mps"]) == 0
    standing_gap_s = max(maximum_gap_s, cleaning.maximum_standing_gap_s)
    limit_s = np.where(stands[:-1] & stands[1:], standing_gap_s, maximum_gap_s)
    cuts = np.flatnonzero(np.diff(filled_trip.time_s) > limit_s) + 1
    reason = f"cut at a gap over {maximum_gap_s:g} s"
    accounts.append(Account.of("repaired", "trips", len(cuts), reason))
    return filled_trip.cut(cuts), Account.total(accounts)


def _covered(time_s: FloatArray, values: FloatArray, maximum_gap_s: float) -> BoolArray:
    """Return rows with a reading, or between two readings close enough to bridge. [rows].

    >>> nan = np.nan
    >>> _covered(np.arange(6.0), np.array([nan, 1.0, nan, 2.0, nan, nan]), maximum_gap_s=2.0)
    array([False,  True,  True,  True, False, False])
    """
    finite = np.isfinite(values)
    if finite.all() or not finite.any():
        return finite
    before = np.maximum.accumulate(np.where(finite, time_s, -np.inf))
    after = np.minimum.accumulate(np.where(finite, time_s, np.inf)[::-1])[::-1]
    return np.asarray(after - before <= maximum_gap_s)


STANDING_MPS = 0.1
DATED_S = 1e8
"""Times above are seconds since 1970, those below since the start of a recording."""


def split_at_pauses(
    recordings: Sequence[RawTrip], *, pause_s: float
) -> tuple[list[RawTrip], Account]:
    """Return the trips of these recordings, in order of time, and an account of parked rows.

    A trip is named by its beginning where the time has a date, else by its recording and number.
    """
    trips: list[RawTrip] = []
    accounts = []
    for recording in recordings:
        parts, account = in_order(recording)
        accounts.append(account)
        numbered = 0
        for part in parts:
            driven = part.take(~_parked(part, pause_s))
            dropped = part.rows - driven.rows
            reason = f"parked: standing for over {pause_s / 60:g} min"
            accounts.append(Account.of("dropped", "rows", dropped, reason))
            cuts = np.flatnonzero(np.diff(driven.time_s) > pause_s) + 1
            for trip in driven.cut(cuts):
                numbered += 1
                trips.append(_named(trip, recording.name, numbered))
    return trips, Account.total(accounts)


def _named(trip: RawTrip, recording: str, number: int) -> RawTrip:
    begins = float(trip.time_s[0])
    if begins > DATED_S:
        name = f"{datetime.fromtimestamp(begins, UTC):%Y-%m-%dT%H-%M-%S}"
    else:
        name = f"{recording}-{number}" if recording else str(number)
    return replace(trip, name=name)


def _parked(trip: RawTrip, pause_s: float) -> BoolArray:
    """Return rows inside stands longer than the pause, without a stand's first and last. [rows].

    >>> trip = RawTrip("1", np.arange(6.0), {"speed_mps": np.array([5.0, 0, 0, 0, 0, 5.0])})
    >>> _parked(trip, 2.0)
    array([False, False,  True,  True, False, False])
    """
    inside = np.zeros(trip.rows, dtype=bool)
    if not trip.has("speed_mps"):
        return inside
    stands = np.abs(forward_filled(trip.channels["speed_mps"])) <= STANDING_MPS
    for start, stop in _runs(stands):
        if trip.time_s[stop - 1] - trip.time_s[start] > pause_s:
            inside[start + 1 : stop - 1] = True
    return inside


def _runs(flags: BoolArray) -> list[tuple[int, int]]:
    """Return the first row of each run of True, and the row after its last.

    >>> _runs(np.array([True, True, False, True]))
    [(0, 2), (3, 4)]
    """
    borders = np.flatnonzero(np.diff(np.r_[False, flags, False].astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(borders[::2], borders[1::2], strict=True)]
