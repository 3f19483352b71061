"""Speed limits as OpenStreetMap writes them (key `maxspeed`), in m/s."""

import re
from math import inf, nan

from fedwatt.telemetry.channels import CHANNELS

KMH = 1 / 3.6
UNITS = {"": KMH, "km/h": KMH, "kmh": KMH, "kph": KMH, "mph": 1.609344 * KMH}
# Without a limit: what Germany advises on such motorways. Walking pace: its upper end.
WORDS = {"none": 130 * KMH, "walk": 7 * KMH}
NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z/]*)")

# Most streets carry no `maxspeed`; a usual limit of their class stands in, and is counted.
USUAL_KMH = {
    "motorway": 110.0, "trunk": 90.0, "primary": 70.0, "secondary": 60.0, "tertiary": 50.0,
    "motorway_link": 70.0, "trunk_link": 60.0, "primary_link": 50.0, "secondary_link": 50.0,
    "tertiary_link": 50.0, "unclassified": 50.0, "residential": 40.0, "road": 50.0,
    "living_street": 15.0, "service": 20.0,
}  # fmt: skip


def limit_mps(text: str) -> float:
    """Return the limit that a value of `maxspeed` states; NaN where it states none.

    Of several values the lowest counts. National codes such as `DE:urban` are not looked up.

    >>> [round(limit_mps(text) * 3.6, 1) for text in ("50", "30 mph", "walk", "none", "60;40")]
    [50.0, 48.3, 7.0, 130.0, 40.0]
    >>> limit_mps("DE:urban"), limit_mps("signals"), limit_mps("500")
    (nan, nan, nan)
    """
    lowest = min((_single_limit(piece.strip().lower()) for piece in text.split(";")), default=inf)
    return lowest if lowest < inf else nan


def _single_limit(text: str) -> float:
    """One limit; infinity where `text` is none."""
    number = NUMBER.fullmatch(text)
    if number is not None and number[2] in UNITS:
        value = float(number[1]) * UNITS[number[2]]
    else:
        value = WORDS.get(text, inf)
    plausible = CHANNELS["speed_limit_mps"]
    return value if plausible.low <= value <= plausible.high else inf
