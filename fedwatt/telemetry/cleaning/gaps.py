"""Cut a trip wherever it was not really recorded.

Short gaps are bridged by resampling (held or straight lines). Where the time between two readings
of speed, or of a pack signal the energy comes from, exceeds the limit, the trip is cut.

A car that stands has a limit of its own. VED writes a row when something changes, and its receiver
reports every 30 s at standstill: 98.6 % of its gaps over 10 s lie between two rows of speed 0,
where nothing changed and nothing was lost. Cutting there would end city trips at a red light.
"""

import numpy as np

from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.cleaning.cleaning import Cleaning
from fedwatt.telemetry.cleaning.resample import energy_source, forward_filled
from fedwatt.telemetry.trip import BoolArray, FloatArray, RawTrip

# Steps of energy are not a state that could be held.
HELD_ESSENTIALS = ("voltage_v", "current_a", "power_w", "energy_total_wh")


def cut_at_gaps(trip: RawTrip, cleaning: Cleaning) -> tuple[list[RawTrip], Account]:
    """Parts in which no essential channel is silent longer than the cleaning allows."""
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
    """Rows with a reading, or between two readings close enough to bridge. [rows].

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
