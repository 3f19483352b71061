"""A trip that was cut into useless parts is dropped with what cut it."""

import numpy as np
import pytest

from fedwatt.telemetry.cleaning.clean import clean_trip
from fedwatt.telemetry.cleaning.cleaning import PLAIN_CLEANING
from fedwatt.telemetry.trip import RawTrip


def trip(step: float = 1.0, seconds: int = 600, **changed: np.ndarray | float) -> RawTrip:
    time_s = np.arange(0.0, seconds, step)
    wave = np.sin(time_s / 9)
    channels = {
        "speed_mps": 10 + 5 * wave,
        "voltage_v": np.full(len(time_s), 360.0),
        "current_a": 20 + 10 * wave,
    }
    return RawTrip("1", time_s, {**channels, **{n: v + 0 * time_s for n, v in changed.items()}})


EVERY_40TH = np.where(np.arange(600) % 40 == 0, 20.0 + np.arange(600) / 100, np.nan)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (
            trip(step=15.0),
            "rows about 15 s apart, over the gap limit of 10 s (--maximum-gap 38 bridges them)",
        ),
        (trip(speed_mps=-10 - np.sin(np.arange(600.0))), "speed_mps mostly below 0 m/s"),
        (trip(speed_mps=90 + np.sin(np.arange(600.0))), "speed_mps mostly above 70 m/s"),
        (trip(speed_mps=np.arange(600.0) % 20 - 10), "speed_mps mostly below 0 m/s"),
        (
            trip(current_a=EVERY_40TH),
            "readings of current_a about 40 s apart, over the gap limit of 10 s "
            "(--maximum-gap 100 bridges them)",
        ),
        (trip(speed_mps=10.0, current_a=20.0), "speed_mps stuck"),
        (trip(seconds=119), "under 120 s"),
    ],
)
def test_the_cause_is_told(raw: RawTrip, reason: str) -> None:
    parts, account = clean_trip(raw, PLAIN_CLEANING)
    assert parts == []
    assert account.reasons("dropped", "trips") == {reason: 1}
    dropped = account.count("dropped", "rows")
    assert account.count("read", "rows") == raw.rows == dropped


def test_holes_are_told_where_nothing_more_particular_is_known() -> None:
    raw = trip()
    kept = np.arange(600) % 100 < 80  # holes of 20 s, parts of 80 s
    _, account = clean_trip(raw.take(kept), PLAIN_CLEANING)
    assert account.reasons("dropped", "trips") == {"in parts under 120 s between gaps": 1}
