"""Whether a vehicle's clock agrees with the server's.

A vehicle signs the time with its key, and a server that finds the time wrong by a few seconds
refuses the signature as if the key were wrong. Every answer of the server, a refusal included,
carries its own time (the header `Date`), so the difference can be told.
"""

import ssl
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final

SECONDS: Final = 5.0
"""To wait for the server."""
NOTICEABLE: Final = 3.0
"""Seconds of difference that are worth a word; the header is in whole seconds."""


def clock_ahead(
    server: str, ca: Path | None, clock: Callable[[], float] = time.time
) -> float | None:
    """By how many seconds this clock is ahead of the server's; None if the server does not say."""
    host, _, port = server.rpartition(":")
    try:
        if ca is None:
            asked = HTTPConnection(host.strip("[]"), int(port), timeout=SECONDS)
        else:
            trusted = ssl.create_default_context(cafile=str(ca))
            asked = HTTPSConnection(host.strip("[]"), int(port), timeout=SECONDS, context=trusted)
        before = clock()
        asked.request("GET", "/")
        date = asked.getresponse().getheader("Date")
        after = clock()
        asked.close()
        # Whole seconds, cut off: half a second is missing on average.
        shown = parsedate_to_datetime(date or "").timestamp() + 0.5
    except (OSError, HTTPException, ValueError, TypeError):
        return None
    return (before + after) / 2 - shown


def clock_trouble(ahead: float | None) -> str:
    """A sentence about a clock that is off; empty if it is not, or nobody knows.

    >>> clock_trouble(-12.3)
    "This vehicle's clock is 12 s behind the server's. Set it."
    """
    if ahead is None or abs(ahead) < NOTICEABLE:
        return ""
    where = "ahead of" if ahead > 0 else "behind"
    return f"This vehicle's clock is {abs(ahead):.0f} s {where} the server's. Set it."
