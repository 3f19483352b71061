"""Seconds from samples: by hand, against the import's own resampling, and with everything wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwatt.edge.clock import MOST_WAITING, SecondClock, Timing
from fedwatt.errors import SettingError
from fedwatt.telemetry.cleaning.resample import resample
from fedwatt.telemetry.trip import RawTrip

from .toys import hold_of, raw_trip

CHANNELS = ("speed_mps", "ambient_c")


def clock(channels=CHANNELS, **timing) -> SecondClock:
    made = SecondClock(channels, Timing(**timing))
    made.begin()
    return made


def feed(made: SecondClock, rows) -> list[list[float]]:
    """Rows (time, speed, ...) in the order of the clock's channels, and what they complete."""
    done = []
    for time_s, *values in rows:
        made.add(time_s, made.believed(dict(zip(made.channels, values, strict=True))))
        done += made.take(made.ready()).tolist()
    return done


def test_a_second_waits_for_the_next_update():
    made = clock()
    # 6 m/s from 2 m/s: at 1 s the line may be anywhere until the update at 1.5 s is there.
    assert feed(made, [(0.0, 2.0, 9.0), (1.0, 2.0, 9.0)]) == []
    # From 0 to 1.5 s in a line: 2 + 4 · 1/1.5.
    assert feed(made, [(1.5, 6.0, 9.0)]) == [[pytest.approx(2 + 4 / 1.5), 9.0]]


def test_a_standing_value_is_believed_after_one_hold():
    made = clock()
    assert feed(made, [(0.0, 0.0, 9.0), (2.0, 0.0, 9.0)]) == []
    assert feed(made, [(2.5, 0.0, 9.0)]) == [[0.0, 9.0]]
    # The rise to 3 m/s at 10 s begins at 8.5 s: 1 m/s at 9 s.
    rows = feed(made, [(10.0, 3.0, 9.0), (10.1, 3.0, 9.0)])
    assert [row[0] for row in rows] == pytest.approx([0, 0, 0, 0, 0, 0, 0, 1.0, 3.0])


def test_late_within_its_second_takes_its_place_and_later_is_ignored():
    made = clock(patience_s=1.0)
    feed(made, [(0.0, 1.0, 9.0), (1.0, 3.0, 9.0), (2.2, 5.0, 9.0), (1.8, 4.0, 9.0)])
    assert made.counts["reordered"] == 2 and made.counts["too late"] == 0
    done = feed(made, [(3.2, 5.0, 9.0), (4.4, 5.0, 9.0)])
    # Second 2 lies between 1.8 s (4 m/s) and 2.2 s (5 m/s), which came in the other order.
    assert done[0][0] == pytest.approx(4.5)
    feed(made, [(0.5, 9.0, 9.0)])
    assert made.counts["too late"] == 1


def test_of_two_readings_at_one_time_the_last_counts():
    made = clock()
    done = feed(made, [(0.0, 1.0, 9.0), (1.0, 2.0, 9.0), (1.0, 4.0, 9.0), (2.0, 4.0, 9.0)])
    assert done == [[4.0, 9.0]] and made.counts["repeated"] == 2


def test_nan_and_impossible_readings_are_none():
    made = clock()
    assert made.believed({"speed_mps": float("nan"), "ambient_c": 99.0, "volume": 3.0}) == {}
    assert made.counts["implausible"] == 1
    assert made.believed({"speed_mps": float("inf"), "ambient_c": 3.0}) == {"ambient_c": 3.0}


def test_gaps_break_a_trip_where_an_import_would():
    made = clock()
    feed(made, [(0.0, 5.0, 9.0), (1.0, 6.0, 9.0)])
    assert not made.breaks(11.0, {"speed_mps": 6.0})
    assert made.breaks(11.5, {"speed_mps": 6.0})
    feed(made, [(2.0, 0.0, 9.0)])
    assert not made.breaks(33.0, {"speed_mps": 0.0}) and made.breaks(33.5, {"speed_mps": 0.0})
    assert made.breaks(13.0, {"speed_mps": 1.0})


def test_one_stray_old_sample_breaks_nothing_but_three_do():
    made = clock()
    feed(made, [(second, second / 9, 9.0) for second in range(100, 140)])
    assert [made.breaks(50.0 + i, {"speed_mps": 1.0}) for i in range(3)] == [False, False, True]
    made.behind = 2
    assert not made.breaks(140.0, {"speed_mps": 1.0}) and made.behind == 0


def test_a_runaway_sender_does_not_fill_the_memory():
    made = clock()
    feed(made, [(0.0, 1.0, 9.0)])
    for i in range(MOST_WAITING + 50):
        made.add(1 + i * 1e-5, {"ambient_c": i % 40})
    assert len(made.readings["ambient_c"][0]) == MOST_WAITING
    assert made.counts["overrun"] == 51


def test_settings_out_of_range_are_refused():
    with pytest.raises(SettingError, match="hold_s must be at least 0 s"):
        Timing(hold_s=-1)


@settings(max_examples=40, deadline=None)
@given(
    gaps=st.lists(st.integers(1, 25), min_size=3, max_size=80),
    seed=st.integers(0, 2**31),
    lone=st.booleans(),
)
def test_whatever_the_spacing_a_stream_gives_what_an_import_gives(gaps, seed, lone):
    """Every row updates speed, so the usual hold is that of the rows; flags and slopes too."""
    draw = np.random.default_rng(seed)
    time_s = np.concatenate(([0], np.cumsum(gaps))) / 10 + 17.3
    rows = len(time_s)
    channels = {
        "speed_mps": np.arange(rows) % 3 + draw.uniform(0, 0.5, rows),
        "ambient_c": draw.uniform(-20, 40, rows),
        "intersection": (draw.uniform(size=rows) < 0.3) * 1.0,
    }
    if lone:
        channels["ambient_c"][1::2] = np.nan
    hold_s = min(5.0, 1.5 * float(np.median(np.diff(np.round(time_s - time_s[0], 6)))))
    made = clock(tuple(channels), hold_s=hold_s)
    done = feed(made, zip(time_s.tolist(), *(c.tolist() for c in channels.values()), strict=True))
    done += made.finish().tolist()
    resampled = resample(RawTrip("1", time_s, channels))
    for column, name in enumerate(channels):
        assert [row[column] for row in done] == pytest.approx(resampled[name].tolist(), abs=1e-9)


def test_a_logger_with_a_red_light_in_its_trip():
    trip = raw_trip()
    names = tuple(trip.channels)
    made = clock(names, hold_s=hold_of(trip))
    columns = (values.tolist() for values in trip.channels.values())
    done = np.array(feed(made, zip(trip.time_s.tolist(), *columns, strict=True)))
    done = np.concatenate((done, made.finish()))
    resampled = resample(trip)
    for column, name in enumerate(names):
        assert done[:, column] == pytest.approx(resampled[name], abs=1e-12)
    assert all(len(times) <= 3 for times, _ in made.readings.values())
