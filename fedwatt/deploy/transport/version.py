"""The fast path is on with versions of Flower that it was tested with, unless switched off."""

import logging
import os
from functools import cache
from importlib.metadata import version
from typing import Final

TESTED: Final = ("1.41", "1.42")
SWITCH: Final = "FEDWATT_FAST_PATH"
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
