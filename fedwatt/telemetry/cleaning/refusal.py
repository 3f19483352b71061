"""Explanation of an import that keeps no vehicle, with advice."""

import re
from collections.abc import Collection

from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.cleaning.cause import GAP

ADVICE = {
    r"no(?!t)": "Check that the columns of speed and of the pack's signals are right.",
    r"speed_mps mostly below": "Speed is negative: map the column of speed, or turn its sign with "
    "factor = -1 in the mapping.",
    r"\w+ mostly (above|below) (?!0 m/s)": "Is its unit another? Correct it in the mapping.",
    r".*(stuck|frozen)": "The log repeats old readings: look for the column that is updated, or "
    "leave the recording out.",
    r"in parts under": "The recording has many holes: raise --maximum-gap if they may be bridged.",
}
"""How the reason of a dropped trip begins → what to do about it."""


def nothing_left(account: Account) -> str:
    """Each reason once, with its count, then advice that fits them.

    >>> nothing_left(Account.of("dropped", "vehicles", 3, "ice, not asked for"))
    '0 vehicles kept; 3 dropped: 3 ice, not asked for. Ask for other vehicles.'
    """
    vehicles = account.reasons("dropped", "vehicles")
    sentences = [account.sentence("vehicles")]
    trips: dict[str, int] = {}
    # Too few usable trips is explained by what became of the others; no other reason is.
    if any(why.endswith(("usable trips", "usable trip")) for why in vehicles):
        trips = account.reasons("dropped", "trips")
        sentences.append(account.sentence("trips"))
    return " ".join([*sentences, *account.lost_channels(), *_advice(vehicles, trips)])


def _advice(vehicles: Collection[str], trips: Collection[str]) -> list[str]:
    """Return advice for the reasons for which vehicles and trips were dropped."""
    advice = []
    if any(why.endswith("?)") for why in vehicles):
        advice.append("Correct the unit or sign, in the mapping if there is one, and import again.")
    advice += dict.fromkeys(
        text for why in trips for start, text in ADVICE.items() if re.match(start, why)
    )
    if any(GAP in why for why in trips):
        advice.append("Slow logging is no fault: import with that gap limit.")
    if limits := _limits(vehicles, trips):
        advice.append(f"Lower {' or '.join(limits)}, or record more.")
    if any("asked for" in why for why in vehicles) or any("engine" in why for why in trips):
        advice.append("Ask for other vehicles.")
    return advice or ["Ask for other vehicles."]


def _limits(vehicles: Collection[str], trips: Collection[str]) -> list[str]:
    """Return the limits that would have to be lower for more to be kept."""
    under = [why for why in trips if why.startswith("under ")]
    met = {
        "the minimum trips": "of vehicles left out" in trips
        and any(why.endswith("usable trips") for why in vehicles),
        "the minimum seconds": any(why.endswith(" s") for why in under),
        "the minimum metres": any(why.endswith(" m") for why in under),
    }
    return [limit for limit, is_met in met.items() if is_met]
