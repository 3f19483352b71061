"""The hours in which a vehicle answers, such as those in which it charges: "22:00-06:00".

Outside of them it stays connected and answers no question that begins work (`BEGINNINGS`); what it
began within them it finishes, the small steps of a secure sum included. It says for how long it is
away, so that the server does not call it before. Times are those of a clock on the wall, of the
machine's own zone or a named one: where clocks are set forward or back, the hours are as much
shorter or longer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fedwatt.errors import DataError, SettingError

BEGINNINGS: Final = frozenset(("train", "evaluate", "strata", "personalise", "secure-keys"))
"""Questions that work begins with; a secure sum begins with its keys."""
VEHICLE_AWAY: Final = 701
"""Code of the error reply of a vehicle outside its hours; its reason are seconds until these."""
LONGEST_AWAY: Final = 26 * 3600.0
"""Seconds between two openings, which come once a day or more often."""


class NotNow(DataError):
    """A question outside a vehicle's hours."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"outside the hours in which this vehicle answers, for {seconds:.0f} s")
        self.seconds = seconds


@dataclass(frozen=True)
class Hours:
    """Parts of the day, each from a time up to another, over midnight where that is earlier."""

    parts: tuple[tuple[time, time], ...]
    zone: ZoneInfo | None = None
    """None: that of the machine."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    @classmethod
    def of(cls, text: str) -> "Hours":
        """The hours in a text such as "22:00-06:00" or "12:00-13:30,22:00-06:00 Europe/Berlin"."""
        times, _, zone = text.strip().partition(" ")
        try:
            pairs = [part.split("-") for part in times.split(",")]
            parts = tuple((time.fromisoformat(a), time.fromisoformat(b)) for a, b in pairs)
            if any(begin == end or begin.tzinfo or end.tzinfo for begin, end in parts):
                raise ValueError("no hours")
            return cls(parts, ZoneInfo(zone.strip()) if zone else None)
        except ZoneInfoNotFoundError as error:
            raise SettingError(
                f"--hours: there is no time zone '{zone.strip()}'. Write one such as Europe/Berlin."
            ) from error
        except ValueError as error:
            raise SettingError(
                f"--hours must be times of the day such as 22:00-06:00, several with commas "
                f"between them and a time zone behind them if you like, got '{text}'. Midnight is "
                "00:00; leave the option out for all hours."
            ) from error

    def away_seconds(self) -> float:
        """Seconds until the next of these hours; 0 within them."""
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
        """When the clocks of the zone show a time; compared in UTC, where no hour comes twice."""
        return datetime.combine(day, at, self.zone).astimezone(UTC)

    def refuse(self, kind: str) -> None:
        """Raise if a question of this kind would begin work outside these hours."""
        if kind in BEGINNINGS and (seconds := self.away_seconds()):
            raise NotNow(seconds)

    def __str__(self) -> str:
        parts = ",".join(f"{begin:%H:%M}-{end:%H:%M}" for begin, end in self.parts)
        return f"{parts} {self.zone.key}" if self.zone else parts


def told_seconds(reason: object) -> float | None:
    """For how many seconds a vehicle says that it is away; None if it says no such thing.

    >>> told_seconds("3600.0"), told_seconds("-1"), told_seconds("for ever")
    (3600.0, None, None)
    """
    try:
        seconds = float(str(reason))
    except ValueError:
        return None
    return seconds if 0 <= seconds <= LONGEST_AWAY else None


def until(seconds: float) -> str:
    """When so many seconds are over, in UTC, as a reason names it."""
    then = datetime.now(UTC) + timedelta(seconds=seconds)
    return f"it is outside its hours, until {then:%Y-%m-%d %H:%M} UTC"
