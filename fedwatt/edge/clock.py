"""Telemetry samples as they come, turned into whole seconds with the training pipeline's own rules.

A second is worked out by `fedwatt.telemetry.cleaning.resample`, as soon as no sample in
order can change it any more: speed is a straight line between updates, so a second waits for the
next update or for one usual hold without one. The policy for what goes wrong:

* *late*: a sample that belongs to a second not yet worked out takes its place in order; an older
  one is ignored. `patience_s` makes every second wait that much longer for late samples.
* *repeated*: of two readings at one time the one that comes last counts.
* *missing, NaN, outside the schema's limits*: no reading; the channel keeps its last value. Half a
  position is none. Nothing is worked out past the last reading of speed.
* *gap*: where speed is silent longer than an import allows, the trip ends and another begins.
* *clock set back*: three samples in a row that are over ten seconds old begin another trip.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedwatt.errors import check
from fedwatt.telemetry.channels import CHANNELS, POSITION
from fedwatt.telemetry.cleaning.resample import any_set, between_updates, held
from fedwatt.telemetry.cleaning.segments import RESET_S
from fedwatt.telemetry.trip import FloatArray

SPEED = "speed_mps"
# Samples in a row that show that a clock was really set back, not that one sample strayed.
CONFIRMED = 3
# Readings of a channel that wait for their second; only a runaway sender has more.
MOST_WAITING = 4096


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Settings of the conversion from a stream of samples to seconds.

    `hold_s` is how long a value of speed usually stands (`resample.usual_hold_s`): 1.5 times the
    time between readings. An import measures it on the whole trip, which a stream has yet to see;
    1.5 s is what it finds for a sensor that is read every second, and 4.5 s for a position every
    three seconds, as VED has them.
    """

    hold_s: float = 1.5
    position_hold_s: float = 4.5
    patience_s: float = 0.0
    maximum_gap_s: float = 10.0
    maximum_standing_gap_s: float = 31.0

    def __post_init__(self) -> None:
        check(self, "hold_s", 0 <= self.hold_s < math.inf, "at least 0 s")
        check(self, "position_hold_s", 0 <= self.position_hold_s < math.inf, "at least 0 s")
        check(self, "patience_s", 0 <= self.patience_s < math.inf, "at least 0 s")
        check(self, "maximum_gap_s", self.maximum_gap_s > 0, "above 0 s")


@dataclass
class SecondClock:
    """The trip under way: readings that still matter, and how far seconds are worked out.

    readings   channel -> times (since the trip began) and values, the last one before `done` first
    first      channel -> its first reading, which reaches back to the beginning as in an import
    done       seconds worked out so far
    counts     what happened to samples and readings that were not simply used
    """

    channels: tuple[str, ...]
    timing: Timing
    origin_s: float = math.nan
    done: int = 0
    behind: int = 0
    readings: dict[str, tuple[list[float], list[float]]] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def begin(self) -> None:
        """Forget the trip; counts stay."""
        self.origin_s = math.nan
        self.done = 0
        self.behind = 0
        self.readings = {name: ([], []) for name in self.channels}
        self.first = {}

    def believed(self, sample: Mapping[str, float]) -> dict[str, float]:
        """Return the readings of a sample that are finite, plausible and asked for."""
        values = {}
        for name in self.channels:
            value = sample.get(name)
            if value is None or value != value:
                continue
            channel = CHANNELS[name]
            if channel.low <= value <= channel.high:
                values[name] = float(value)
            else:
                self.counts["implausible"] += 1
        if len(values.keys() & set(POSITION)) == 1:
            self.counts["half a position"] += 1
            values = {name: value for name, value in values.items() if name not in POSITION}
        return values

    def breaks(self, time_s: float, readings: Mapping[str, float]) -> bool:
        """Return whether this sample can only belong to another trip than the one under way."""
        if math.isnan(self.origin_s):
            return False
        times, values = self.readings[SPEED]
        if time_s - self.origin_s < times[-1] - RESET_S:
            self.behind += 1
            return self.behind >= CONFIRMED
        self.behind = 0
        if SPEED not in readings:
            return False
        timing = self.timing
        stood = values[-1] == 0 and readings[SPEED] == 0
        limit_s = max(timing.maximum_gap_s, timing.maximum_standing_gap_s * stood)
        return time_s - self.origin_s - times[-1] > limit_s

    def add(self, time_s: float, readings: Mapping[str, float]) -> None:
        """Put the readings of one sample in their places."""
        if math.isnan(self.origin_s):
            if SPEED not in readings:
                self.counts["before speed"] += 1
                return
            self.origin_s = time_s
        # Rounded as an import does, so that a row at 13.0 s is not found just after second 13.
        since_s = round(time_s - self.origin_s, 6)
        if since_s < self.done or (since_s == self.done and self.done):
            self.counts["too late"] += 1
            return
        for name, value in readings.items():
            times, values = self.readings[name]
            self.first.setdefault(name, value)
            self.counts["reordered"] += bool(times) and since_s < times[-1]
            place = bisect_right(times, since_s)
            if place and times[place - 1] == since_s:
                self.counts["repeated"] += 1
                values[place - 1] = value
            elif len(times) < MOST_WAITING:
                times.insert(place, since_s)
                values.insert(place, value)
            else:
                self.counts["overrun"] += 1

    def ready(self) -> int:
        """Return the number of seconds that no sample in order can still change."""
        times = self.readings[SPEED][0]
        if not times:
            return self.done
        settled_s = times[-1] - self.timing.patience_s
        sure_s = min(
            max(_stands_since(times, *columns), settled_s - hold_s)
            for _, times, columns, hold_s in self._lines()
        )
        return max(self.done, min(math.ceil(settled_s) - 1, math.floor(sure_s)))

    def _lines(self) -> Iterator[tuple[tuple[str, ...], list[float], list[list[float]], float]]:
        """Return channels that are interpolated between updates: names, times, values, usual hold.

        A position is one reading of two numbers: it is updated where either changes.
        """
        for name in self.channels:
            names = POSITION if name == POSITION[0] else (name,)
            if CHANNELS[name].rule == "linear" and name != POSITION[1] and self.readings[name][0]:
                times = self.readings[name][0]
                timing = self.timing
                hold_s = timing.position_hold_s if name in POSITION else timing.hold_s
                yield names, times, [self.readings[channel][1] for channel in names], hold_s

    def finish(self) -> FloatArray:
        """Return the remaining seconds, [seconds, channels]; the last may be incomplete."""
        times = self.readings[SPEED][0] if self.readings else []
        return self.take(max(self.done, math.ceil(times[-1])) if times else self.done)

    def take(self, until: int) -> FloatArray:
        """Return seconds done + 1 to `until`, [seconds, channels]; NaN for a channel without a
        reading.

        Readings that later seconds do not need are forgotten.
        """
        edges_s = np.arange(self.done, until + 1, dtype=np.float64)
        rows = np.full((until - self.done, len(self.channels)), np.nan)
        if not len(rows):
            return rows
        # The trip reaches to its last reading of speed, as in an import.
        end_s = min(float(until), self.readings[SPEED][0][-1])
        lines: dict[str, FloatArray] = {}
        for names, known_s, columns, hold_s in self._lines():
            arrays = tuple(np.array(entries) for entries in columns)
            made = between_updates(np.array(known_s), arrays, edges_s[1:], hold_s)
            lines |= dict(zip(names, made, strict=True))
        for column, name in enumerate(self.channels):
            times, values = (np.array(part) for part in self.readings[name])
            if not len(times):
                continue
            rule = CHANNELS[name].rule
            if rule == "linear":
                line = lines[name]
            elif times[0] >= end_s:
                line = np.full(len(rows), values[0])
            elif rule == "any":
                here = times < end_s
                line = any_set(times[here], values[here], edges_s, end_s)
            else:
                here = times <= end_s
                line = held(times[here], values[here], edges_s[1:])
            rows[:, column] = line
        self.done = until
        for name in self.channels:
            if name not in POSITION:
                _forget(until, *self.readings[name])
        if POSITION[0] in self.readings:
            (times_waiting, latitudes), (also, longitudes) = (self.readings[n] for n in POSITION)
            _forget(until, times_waiting, latitudes, longitudes)
            also[:] = times_waiting
        return rows


def _stands_since(times: list[float], *columns: list[float]) -> float:
    """Time of the reading that brought the latest values.

    >>> _stands_since([0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 5.0, 5.0])
    1.0
    """
    place = len(times) - 1
    while place and all(values[place - 1] == values[-1] for values in columns):
        place -= 1
    return times[place]


def _forget(until: float, times: list[float], *columns: list[float]) -> None:
    """Drop readings before the update that was in force at `until`; in place.

    >>> times, values = [0.0, 1.0, 2.0, 3.0, 4.5], [5.0, 6.0, 7.0, 7.0, 9.0]
    >>> _forget(4.0, times, values)
    >>> times, values
    ([2.0, 3.0, 4.5], [7.0, 7.0, 9.0])
    """
    last = first = bisect_right(times, until) - 1
    while first > 0 and all(values[first - 1] == values[first] for values in columns):
        first -= 1
    # A value that stands for hours leaves only its first reading and its latest.
    keep = [max(first, 0), *range(max(last, first + 1), len(times))] if last > 0 else []
    if keep:
        for part in (times, *columns):
            part[:] = [part[place] for place in keep]
