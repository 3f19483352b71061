"""A vehicle's acceptance file: the limits within which it takes part in a plan.

KEYS/acceptance.toml, all settings optional:

secure_aggregation = true      refuse plans without it
smallest_sum = 3               vehicles that a sum must be of
largest_epsilon = inf          ε of all accepted plans together, against the server
cpu_seconds = 3600             CPU time of one computation, enforced by RLIMIT_CPU
wall_seconds = 7200            time of one computation, enforced by a kill
memory_mb = 4096               memory of the computing process, enforced by RLIMIT_AS
megabytes = 64                 of one request or reply
hours = ""                     times of the day, such as "22:00-06:00 Europe/Berlin"
bandwidth = ""                 such as "200kB/s"
"""

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from math import inf
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fedwatt.deploy.plan.plan import Plan
from fedwatt.deploy.vehicle.messages import refused
from fedwatt.errors import SettingError, check
from fedwatt.settings import from_table

FILE = "acceptance.toml"
UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "kbit": 125.0, "Mbit": 125e3}
SLOWEST = 1000.0
"""Bytes per second below which a vehicle would hardly answer in a round's time."""


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Limits within which a vehicle takes part."""

    secure_aggregation: bool = True
    smallest_sum: int = 3
    largest_epsilon: float = inf
    cpu_seconds: int = 3600
    wall_seconds: float = 7200.0
    memory_mb: int = 4096
    megabytes: float = 64.0
    hours: str = ""
    bandwidth: str = ""

    def __post_init__(self) -> None:
        check(self, "smallest_sum", self.smallest_sum >= 2, "at least 2: one hides nothing")
        check(self, "largest_epsilon", self.largest_epsilon > 0, "above 0 (inf: any)")
        check(self, "cpu_seconds", self.cpu_seconds >= 1, "at least 1")
        check(self, "wall_seconds", self.wall_seconds > 0, "above 0")
        check(self, "memory_mb", self.memory_mb >= 256, "at least 256")
        check(self, "megabytes", self.megabytes > 0, "above 0")
        Hours.read(self.hours)
        bytes_per_second(self.bandwidth)

    @classmethod
    def read(cls, path: Path) -> "Acceptance":
        """Read an acceptance file; the defaults where there is none."""
        if not path.exists():
            return cls()
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise SettingError(f"{path} cannot be read: {error}.") from error
        return from_table(cls, table, str(path))

    @property
    def largest_message(self) -> int:
        """Return the most bytes of a request or reply."""
        return int(self.megabytes * 1e6)

    def accept(self, plan: Plan, spent: float) -> None:
        """Raise NoResult unless the plan is within the limits.

        `spent` is the ε of other plans that this vehicle accepted; the ε of plans add up.
        """
        secure = plan.config.secure
        if not secure.enabled:
            if self.secure_aggregation:
                raise refused("secure_aggregation")
        elif secure.smallest_sum < self.smallest_sum:
            raise refused("smallest_sum")
        if self.largest_epsilon < inf and spent + plan.epsilon() > self.largest_epsilon:
            raise refused("largest_epsilon")


@dataclass(frozen=True)
class Hours:
    """Parts of the day in which a vehicle computes, over midnight where the end is earlier.

    Outside of them it stays connected and begins no work. Times are wall-clock times of the
    machine's zone or of a named one.
    """

    parts: tuple[tuple[time, time], ...] = ()
    """Empty: all hours."""
    zone: ZoneInfo | None = None
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    @classmethod
    def read(cls, text: str) -> "Hours":
        """Return the hours in a text such as "12:00-13:30,22:00-06:00 Europe/Berlin"."""
        if not text.strip():
            return cls()
        times, _, zone = text.strip().partition(" ")
        try:
            pairs = [part.split("-") for part in times.split(",")]
            parts = tuple((time.fromisoformat(a), time.fromisoformat(b)) for a, b in pairs)
            if any(begin == end or begin.tzinfo or end.tzinfo for begin, end in parts):
                raise ValueError("no hours")
            return cls(parts, ZoneInfo(zone.strip()) if zone else None)
        except ZoneInfoNotFoundError as error:
            raise SettingError(f"hours: there is no time zone '{zone.strip()}'.") from error
        except ValueError as error:
            raise SettingError(
                f"hours must be times of the day such as 22:00-06:00, several with commas between "
                f"them and a time zone behind them if you like, got '{text}'."
            ) from error

    def away_seconds(self) -> float:
        """Return the seconds until the next of these hours; 0 within them."""
        if not self.parts:
            return 0.0
        now = self.now()
        today = now.astimezone(self.zone).date()
        spans = [
            (self._moment(day, begin), self._moment(day + timedelta(days=end < begin), end))
            for day in (today + timedelta(days=n) for n in (-1, 0, 1))
            for begin, end in self.parts
        ]
        if any(begin <= now < end for begin, end in spans):
            return 0.0
        return min((begin - now).total_seconds() for begin, _ in spans if begin > now)

    def _moment(self, day: date, at: time) -> datetime:
        """Return when the clocks of the zone show a time, in UTC, where no hour comes twice."""
        return datetime.combine(day, at, self.zone).astimezone(UTC)


def bytes_per_second(text: str) -> float:
    """Return the rate in a text; 0, for no limit, in an empty one.

    >>> bytes_per_second("200kB/s"), bytes_per_second("1.5 Mbit/s")
    (200000.0, 187500.0)
    """
    if not text:
        return 0.0
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)/s\s*", text)
    rate = float(match[1]) * UNITS.get(match[2], 0.0) if match else 0.0
    if rate < SLOWEST:
        raise SettingError(
            f"bandwidth must be 1kB/s or more, such as 200kB/s or 1.5Mbit/s, got '{text}'. Units "
            f"are {', '.join(UNITS)}; leave it empty for no limit."
        )
    return rate
