"""Telemetry samples as they come, turned into whole seconds with the training pipeline's own rules.

A second is worked out by the functions of `fedwatt.telemetry.resample`, as soon as no sample in
order can change it any more: speed is a straight line between updates, so a second waits for the
next update or for one usual hold without one. The policy for what goes wrong:

* *late*: a sample that belongs to a second not yet worked out takes its place in order; an older
  one is ignored. `patience_s` makes every second wait that much longer for late samples.
* *repeated*: of two readings at one time the one that comes last counts.
* *missing, NaN, outside the schema's limits*: no reading; the channel keeps its last value. Nothing
  is worked out past the last reading of speed.
* *gap*: where speed is silent longer than an import allows, the trip ends and another begins.
* *clock set back*: three samples in a row that are over ten seconds old begin another trip.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import check
from fedwatt.telemetry.order import RESET_S
from fedwatt.telemetry.resample import any_set, between_updates, held
from fedwatt.telemetry.schema import CHANNELS

FloatArray = NDArray[np.float64]

SPEED = "speed_mps"
# Samples in a row that show that a clock was really set back, not that one sample strayed.
CONFIRMED = 3
# Readings of a channel that wait for their second; only a runaway sender has more.
MOST_WAITING = 4096


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How a stream of samples becomes seconds.

    `hold_s` is how long a value of speed usually stands (`resample.usual_hold_s`): 1.5 times the
    time between readings. An import measures it on the whole trip, which a stream has yet to see;
    1.5 s is what it finds for a sensor that is read every second.
    """

    hold_s: float = 1.5
    patience_s: float = 0.0
    maximum_gap_s: float = 10.0
    maximum_standing_gap_s: float = 31.0

    def __post_init__(self) -> None:
        check(self, "hold_s", 0 <= self.hold_s < math.inf, "at least 0 s")
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
        self.origin_s, self.done, self.behind = math.nan, 0, 0
        self.readings = {name: ([], []) for name in self.channels}
        self.first = {}

    def believed(self, sample: Mapping[str, float]) -> dict[str, float]:
        """The readings of a sample that are finite, plausible and asked for."""
        found = {}
        for name in self.channels:
            value = sample.get(name)
            if value is None or value != value:
                continue
            channel = CHANNELS[name]
            if channel.low <= value <= channel.high:
                found[name] = float(value)
            else:
                self.counts["implausible"] += 1
        return found

    def breaks(self, time_s: float, readings: Mapping[str, float]) -> bool:
        """Whether this sample can only belong to another trip than the one under way."""
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
        """Seconds that no sample in order can change any more."""
        times = self.readings[SPEED][0]
        if not times:
            return self.done
        settled_s = times[-1] - self.timing.patience_s
        sure_s = min(
            max(_stands_since(*self.readings[name]), settled_s - self.timing.hold_s)
            for name in self.channels
            if CHANNELS[name].rule == "linear" and self.readings[name][0]
        )
        return max(self.done, min(math.ceil(settled_s) - 1, math.floor(sure_s)))

    def finish(self) -> FloatArray:
        """All seconds that are left, [seconds, channels]; the last may be only partly driven."""
        times = self.readings[SPEED][0] if self.readings else []
        return self.take(max(self.done, math.ceil(times[-1])) if times else self.done)

    def take(self, until: int) -> FloatArray:
        """Seconds done + 1 to `until`, [seconds, channels]; NaN for a channel without a reading.

        What they no longer need is forgotten.
        """
        edges_s = np.arange(self.done, until + 1, dtype=np.float64)
        rows = np.full((until - self.done, len(self.channels)), np.nan)
        if not len(rows):
            return rows
        # The trip reaches to its last reading of speed, as in an import.
        end_s = min(float(until), self.readings[SPEED][0][-1])
        for column, name in enumerate(self.channels):
            times, values = (np.array(part) for part in self.readings[name])
            if not len(times):
                continue
            rule = CHANNELS[name].rule
            if rule == "linear":
                found = between_updates(times, (values,), edges_s[1:], self.timing.hold_s)[0]
            elif times[0] >= end_s:
                found = np.full(len(rows), values[0])
            elif rule == "any":
                here = times < end_s
                found = any_set(times[here], values[here], edges_s, end_s)
            else:
                here = times <= end_s
                found = held(times[here], values[here], edges_s[1:])
            rows[:, column] = found
        self.done = until
        for times_waiting, values_waiting in self.readings.values():
            _forget(times_waiting, values_waiting, until)
        return rows


def _stands_since(times: list[float], values: list[float]) -> float:
    """Time of the reading that brought the latest value.

    >>> _stands_since([0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 5.0, 5.0])
    1.0
    """
    place = len(values) - 1
    while place and values[place - 1] == values[-1]:
        place -= 1
    return times[place]


def _forget(times: list[float], values: list[float], until: float) -> None:
    """Drop readings before the update that was in force at `until`; in place.

    >>> times, values = [0.0, 1.0, 2.0, 3.0, 4.5], [5.0, 6.0, 7.0, 7.0, 9.0]
    >>> _forget(times, values, 4.0)
    >>> times, values
    ([2.0, 3.0, 4.5], [7.0, 7.0, 9.0])
    """
    last = first = bisect_right(times, until) - 1
    while first > 0 and values[first - 1] == values[first]:
        first -= 1
    # A value that stands for hours leaves only its first reading and its latest.
    keep = [max(first, 0), *range(max(last, first + 1), len(times))] if last > 0 else []
    if keep:
        times[:] = [times[place] for place in keep]
        values[:] = [values[place] for place in keep]
