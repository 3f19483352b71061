"""Cause of the cuts of a trip of which nothing is left although it was long enough."""

from collections.abc import Iterator
from math import ceil

import numpy as np

from fedwatt.telemetry.channels import CHANNELS
from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.cleaning.cleaning import Cleaning
from fedwatt.telemetry.cleaning.resample import energy_source
from fedwatt.telemetry.trip import FloatArray, RawTrip

MANY = 0.2
"""Share of a channel's readings, or of a trip's rows, that is enough to spoil the trip."""
ROWS_BRIDGED = 2.5
"""A gap up to this many usual intervals was recorded well enough: one or two rows are missing."""
GAP = "over the gap limit of"


def cause_of_cuts(trip: RawTrip, account: Account, cleaning: Cleaning) -> str:
    """Return what cut a recorded trip into useless parts; "" if it was too short already.

    `account` is that of its cleaning. The most particular cause is told.
    """
    time_s = np.unique(trip.time_s[np.isfinite(trip.time_s)])
    if not len(time_s) or np.ptp(time_s) < cleaning.minimum_seconds:
        return ""
    causes = (
        *_beyond_limits(trip),
        *_slow(time_s, "rows", cleaning),
        *_slow_channels(trip, cleaning),
        *_stuck(trip, account),
    )
    return next(iter(causes), f"in parts under {cleaning.minimum_seconds:g} s between gaps")


def _beyond_limits(trip: RawTrip) -> Iterator[str]:
    for name in ("speed_mps", *energy_source(trip)):
        values = trip.channels[name][np.isfinite(trip.channels[name])]
        limits = CHANNELS[name]
        for wrong, side, limit in (
            (values < limits.low, "below", limits.low),
            (values > limits.high, "above", limits.high),
        ):
            if len(values) and wrong.mean() > MANY:
                yield f"{name} mostly {side} {limit:g} {limits.unit}"


def _slow(time_s: FloatArray, what: str, cleaning: Cleaning) -> Iterator[str]:
    """Return whether most steps of time are longer than the gap that is bridged."""
    usual = float(np.median(np.diff(time_s))) if len(time_s) > 1 else 0.0
    if usual > cleaning.maximum_gap_s:
        cure = f"--maximum-gap {ceil(ROWS_BRIDGED * usual)} bridges them"
        yield f"{what} about {usual:.0f} s apart, {GAP} {cleaning.maximum_gap_s:g} s ({cure})"


def _slow_channels(trip: RawTrip, cleaning: Cleaning) -> Iterator[str]:
    for name in ("speed_mps", *energy_source(trip)):
        recorded = np.isfinite(trip.channels[name]) & np.isfinite(trip.time_s)
        yield from _slow(np.unique(trip.time_s[recorded]), f"readings of {name}", cleaning)


def _stuck(trip: RawTrip, account: Account) -> Iterator[str]:
    """Yield a reason for which most rows were dropped before the trip was cut."""
    for reason, rows in account.reasons("dropped", "rows").items():
        if rows > MANY * trip.rows and ("stuck" in reason or "frozen" in reason):
            yield reason
