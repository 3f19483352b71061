"""Make trips of a vehicle's whole recording: a pause ends a trip, driven or parked.

For recordings whose rows do not say which trip they are of. A logger that goes on while the vehicle
is parked, or charges, writes rows of speed 0: a stand longer than the pause ends a trip as well,
and its rows, which are no driving, are dropped and counted.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.cleaning.order import in_order
from fedwatt.telemetry.cleaning.resample import forward_filled
from fedwatt.telemetry.trip import BoolArray, RawTrip

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
    """Rows inside stands longer than the pause; the first and the last row of a stand stay. [rows].

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
    """First row of each run of True, and the row after its last.

    >>> _runs(np.array([True, True, False, True]))
    [(0, 2), (3, 4)]
    """
    borders = np.flatnonzero(np.diff(np.r_[False, flags, False].astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(borders[::2], borders[1::2], strict=True)]
