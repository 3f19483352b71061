"""Account of an import: rows, trips and vehicles read, kept, dropped and repaired, and why.

Every stage of cleaning returns an `Account`; accounts add up, so a vehicle's is the sum over its
trips and a fleet's the sum over its vehicles. Rows and trips balance: read = kept + dropped. An
import that keeps no vehicle is explained with advice (`nothing_left`).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fedwatt.errors import counted

Action = Literal["read", "kept", "dropped", "repaired"]
ACTIONS: tuple[Action, ...] = ("read", "kept", "dropped", "repaired")
UNITS = ("vehicles", "trips", "parts", "rows", "values", "seconds", "channels")


@dataclass(frozen=True)
class Account:
    """Counts keyed by (action, unit, reason); the reason is "" for what was read or kept.

    >>> one = Account.of("read", "rows", 10) + Account.of("dropped", "rows", 2, "duplicate row")
    >>> (one + one).to_json()
    {'read': {'rows': 20}, 'dropped': {'rows': {'duplicate row': 4}}}
    """

    entries: Mapping[tuple[str, str, str], int] = field(default_factory=dict)

    @staticmethod
    def of(action: Action, unit: str, count: int, reason: str = "") -> "Account":
        """Return an account of one entry, empty for a count of 0."""
        return Account({(action, unit, reason): int(count)}) if count else Account()

    @staticmethod
    def passed_over(unit: str, count: int, reason: str) -> "Account":
        """Return the account of `count` units (trips, rows) that were read and dropped at once."""
        return Account.of("read", unit, count) + Account.of("dropped", unit, count, reason)

    @staticmethod
    def total(accounts: Iterable["Account"]) -> "Account":
        """Return the sum of accounts."""
        entries: Counter[tuple[str, str, str]] = Counter()
        for account in accounts:
            entries.update(account.entries)
        return Account(dict(sorted(entries.items())))

    def __add__(self, other: "Account") -> "Account":
        return Account.total((self, other))

    def count(self, action: Action, unit: str, reason: str | None = None) -> int:
        """Return the number of `unit` that met `action`, over all reasons unless one is named.

        >>> Account.of("dropped", "trips", 3, "under 120 s").count("dropped", "trips")
        3
        """
        counts = self.reasons(action, unit)
        return sum(counts.values()) if reason is None else counts.get(reason, 0)

    def reasons(self, action: Action, unit: str) -> dict[str, int]:
        """Return counts by reason, most frequent first."""
        counts = {w: n for (a, u, w), n in self.entries.items() if (a, u) == (action, unit)}
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def to_json(self) -> dict[str, Any]:
        """Return the account as nested dictionaries, for `facts` and JSON files."""
        tree: dict[str, Any] = {}
        for action in ACTIONS:
            for unit in UNITS:
                if reasons := self.reasons(action, unit):
                    plain = action in ("read", "kept")
                    tree.setdefault(action, {})[unit] = reasons[""] if plain else reasons
        return tree

    @staticmethod
    def from_json(tree: Mapping[str, Any]) -> "Account":
        """Return the account that `to_json` wrote.

        >>> account = Account.of("read", "rows", 10) + Account.of("dropped", "rows", 2, "duplicate")
        >>> Account.from_json(account.to_json()) == account
        True
        """
        entries: dict[tuple[str, str, str], int] = {}
        for action, units in tree.items():
            for unit, counts in units.items():
                by_reason = counts if isinstance(counts, Mapping) else {"": counts}
                entries.update({(action, unit, why): n for why, n in by_reason.items()})
        return Account(dict(sorted(entries.items())))

    def sentence(self, unit: str = "trips") -> str:
        """Return one sentence on a unit: how many were kept, and why others were dropped.

        >>> account = Account.of("kept", "trips", 1204) + Account.of(
        ...     "dropped", "trips", 19, "under 60 s") + Account.of(
        ...     "dropped", "trips", 12, "no pack current")
        >>> account.sentence()
        '1,204 trips kept; 31 dropped: 19 under 60 s, 12 no pack current.'

        Trips that were cut are counted as recorded, then as what they became:

        >>> (Account.of("kept", "trips", 1) + Account.of("kept", "parts", 3)).sentence()
        '1 trip kept, cut at gaps into 3; 0 dropped.'
        """
        dropped = self.reasons("dropped", unit)
        why = ", ".join(f"{number:,} {reason}" for reason, number in dropped.items())
        lost = f"{sum(dropped.values()):,} dropped" + (f": {why}" if why else "")
        kept_count = self.count("kept", unit)
        parts = self.count("kept", "parts")
        cut = f", cut at gaps into {parts:,}" if unit == "trips" and parts > kept_count else ""
        return f"{counted(kept_count, unit.removesuffix('s'))} kept{cut}; {lost}."

    def sentences(self) -> list[str]:
        """Return sentences on vehicles, trips, rows, readings and channels.

        >>> account = Account.of("kept", "vehicles", 1) + Account.of("kept", "trips", 9)
        >>> for line in account.sentences(): print(line)
        Cleaning: 1 vehicle kept; 0 dropped.
        Cleaning: 9 trips kept; 0 dropped.
        Cleaning: 0 rows kept; 0 dropped.
        """
        lines = [self.sentence(unit) for unit in ("vehicles", "trips", "rows")]
        lines += [f"{rows:,} rows {why}." for why, rows in self.reasons("repaired", "rows").items()]
        if values := self.reasons("repaired", "values"):
            why = ", ".join(f"{number:,} {reason}" for reason, number in values.items())
            lines.append(f"{counted(sum(values.values()), 'reading')} left out: {why}.")
        return [f"Cleaning: {line}" for line in (*lines, *self.lost_channels())]

    def lost_channels(self) -> list[str]:
        """Return a sentence for each channel of which some vehicle has no reading within its
        limits.

        >>> Account.of("dropped", "channels", 2, "soc is 31 to 96, outside 0 to 1").lost_channels()
        ['soc is 31 to 96, outside 0 to 1, and left out in 2 vehicles. Is its unit another?']
        """
        lost: dict[str, tuple[str, int]] = {}
        for reason, vehicles in self.reasons("dropped", "channels").items():
            # Every vehicle has a range of its own: the most frequent one stands for all.
            usual, so_far = lost.get(reason.partition(" ")[0], (reason, 0))
            lost[reason.partition(" ")[0]] = usual, so_far + vehicles
        return [
            f"{usual}, and left out in {counted(vehicles, 'vehicle')}. Is its unit another?"
            for usual, vehicles in lost.values()
        ]


GAP = "over the gap limit of"

ADVICE = {
    r".*\?\)$": "Correct the unit or sign, in the mapping if there is one, and import again.",
    r"no(?!t)": "Check that the columns of speed and of the pack's signals are right.",
    r"speed_mps mostly below": "Speed is negative: map the column of speed, or turn its sign with "
    "factor = -1 in the mapping.",
    r"\w+ mostly (above|below) (?!0 m/s)": "Is its unit another? Correct it in the mapping.",
    r".*(stuck|frozen)": "The log repeats old readings: look for the column that is updated, or "
    "leave the recording out.",
    r"in parts under": "The recording has many holes: raise --max-gap if they may be bridged.",
    rf".*{GAP}": "Slow logging is no fault: import with that gap limit.",
    r"of vehicles left out": "Lower the minimum trips, or record more.",
    r"under .* s$": "Lower the minimum seconds, or record more.",
    r"under .* m$": "Lower the minimum metres, or record more.",
    r".*(asked for|engine)": "Ask for other vehicles.",
}
"""How the reason of a dropped vehicle or trip begins → what to do about it."""


def nothing_left(account: Account) -> str:
    """Return each reason once, with its count, then advice that fits them.

    >>> nothing_left(Account.of("dropped", "vehicles", 3, "ice, not asked for"))
    '0 vehicles kept; 3 dropped: 3 ice, not asked for. Ask for other vehicles.'
    """
    reasons = account.reasons("dropped", "vehicles")
    sentences = [account.sentence("vehicles")]
    # Too few usable trips is explained by what became of the others; no other reason is.
    if any(why.endswith(("usable trips", "usable trip")) for why in reasons):
        reasons |= account.reasons("dropped", "trips")
        sentences.append(account.sentence("trips"))
    advice = dict.fromkeys(
        text for why in reasons for start, text in ADVICE.items() if re.match(start, why)
    )
    return " ".join([*sentences, *account.lost_channels(), *advice])
