"""Energy that left the pack, by time, as samples bring it: for windows that end a little later.

A sample brings the energy since the one before it, spread evenly over the time between. Where it
brings none, or there was no sample for long, the time between is unknown, and so is the energy of
any window that holds some of it.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

LONGEST_S = 10.0
"""Samples farther apart say nothing about the time between."""


@dataclass
class EnergyMeter:
    """The latest `memory_s` of a counter of energy.

    times_s     of the samples
    total_wh    energy since some moment, at these times
    unknown     how many intervals up to these times had no energy
    """

    memory_s: float
    last_s: float = math.nan
    times_s: list[float] = field(default_factory=list)
    total_wh: list[float] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    begun: bool = False

    def add(self, time_s: float, energy_wh: float | None) -> None:
        """Add a sample; ignore one that is not later than the last one."""
        if not math.isfinite(time_s) or time_s <= self.last_s:
            return
        has_energy = energy_wh is not None and math.isfinite(energy_wh)
        has_energy &= time_s - self.last_s <= LONGEST_S
        self.begun |= has_energy
        before_wh = self.total_wh[-1] if self.total_wh else 0.0
        before = self.unknown[-1] if self.unknown else 0
        self.times_s.append(time_s)
        self.total_wh.append(
            before_wh + (energy_wh if has_energy and energy_wh is not None else 0.0)
        )
        self.unknown.append(before + (not has_energy))
        self.last_s = time_s
        # In large pieces: taking the first of a list away moves all others.
        if time_s - self.times_s[0] > 2 * self.memory_s:
            old = bisect_left(self.times_s, time_s - self.memory_s)
            for part in (self.times_s, self.total_wh, self.unknown):
                del part[:old]

    def between(self, begin_s: float, end_s: float) -> float:
        """Energy from one time to another, Wh; NaN where some of it is not known.

        >>> meter = EnergyMeter(60.0)
        >>> for time_s, energy_wh in ((0, None), (1, 2.0), (3, 6.0), (4, None)):
        ...     meter.add(time_s, energy_wh)
        >>> meter.between(0.5, 2.0), meter.between(2.0, 4.0)
        (4.0, nan)
        """
        if not self.times_s or begin_s < self.times_s[0] or end_s > self.times_s[-1]:
            return math.nan
        first = bisect_right(self.times_s, begin_s) - 1
        last = bisect_left(self.times_s, end_s)
        if self.unknown[last] != self.unknown[first]:
            return math.nan
        return self._at(end_s) - self._at(begin_s)

    def _at(self, time_s: float) -> float:
        after = bisect_left(self.times_s, time_s)
        if self.times_s[after] == time_s:
            return self.total_wh[after]
        before_s, after_s = self.times_s[after - 1 : after + 1]
        before_wh, after_wh = self.total_wh[after - 1 : after + 1]
        return before_wh + (after_wh - before_wh) * (time_s - before_s) / (after_s - before_s)

    def to_json(self) -> dict[str, Any]:
        """Return everything that the meter knows, as plain values."""
        return asdict(self) | {"last_s": None if math.isnan(self.last_s) else self.last_s}

    @staticmethod
    def from_json(entry: Mapping[str, Any]) -> "EnergyMeter":
        """Return the meter that `to_json` described."""
        last_s = math.nan if entry["last_s"] is None else float(entry["last_s"])
        return EnergyMeter(**{**entry, "last_s": last_s})
