"""Messages between server and vehicles, carried by Flower; nothing else imports Flower.

Works with Flower's public interface on any version. Where Flower's version is known, the SuperLink
and the run's channel take a fast path (`fast_path`) with three measured gains, and nothing else:

    short answers             the four frequent paths skip Flower's nine layers of middleware
    held polls                a vehicle's poll is answered when there is a message for it
    single-request messages   a message travels with all of its parts in one request

On other versions the fast path is off, with a line in the log, and everything works without it.
"""

import logging
import os
from functools import cache
from importlib.metadata import version

TESTED = ("1.41", "1.42")
SWITCH = "FEDWATT_FAST_PATH"
"""Environment variable; 0 switches the fast path off."""

log = logging.getLogger("fedwatt.deploy")


@cache
def fast_path_is_on() -> bool:
    """Return whether to take the fast path, and log once where it is off."""
    if os.environ.get(SWITCH, "1") == "0":
        log.info("the fast path is switched off (%s=0)", SWITCH)
        return False
    installed = version("flwr")
    if installed.rpartition(".")[0] not in TESTED:
        log.warning(
            "Flower %s is new to fedwatt, so the fast path is off: rounds take more of the "
            "server's time, and nothing else changes",
            installed,
        )
        return False
    return True
